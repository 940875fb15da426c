"""Packages whose names are loaded on first use, and what becomes of names that they had before."""

import pytest

from pocketmq import namesrv, store


def test_former_name_works_with_a_warning_that_names_the_new_one() -> None:
    for package, former, name in (
        (store, "MessageIllegal", "RecordIllegal"),
        (store, "MessageTooLarge", "RecordTooLarge"),
        (namesrv, "Registration", "BrokerRegistration"),
    ):
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(package, former) is getattr(package, name)
        assert former not in dir(package)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'pocketmq\.store' has no attribute 'Nothing'"):
        _ = store.Nothing
