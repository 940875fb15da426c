"""A machine without one of the toolchains: what its user is told, and what CI makes of it."""

import pytest

from tests.interop.conftest import or_missing
from tests.interop.toolchain import ToolchainMissing, program


def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(ToolchainMissing, match="no-such-program is not on the PATH"):
        program("no-such-program", "apt install it")


def test_a_missing_toolchain_is_a_skip_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt install it"):
        or_missing(lambda: program("no-such-program", "apt install it"))


def test_a_missing_toolchain_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt install it"):
        or_missing(lambda: program("no-such-program", "apt install it"))
