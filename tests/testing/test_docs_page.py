"""docs/testing.md: its tests are run as a reader would run them."""

import pytest

from tests.house.doc_blocks import ROOT, blocks

pytest_plugins = ["pytester"]

_PAGE = ROOT / "docs" / "testing.md"


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    """In the order of the page, as one file."""
    texts = [
        block.text
        for block in blocks(_PAGE, "python")
        if block.words.get("run by") == "tests/testing/test_docs_page.py"
    ]
    assert len(texts) == 6
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makepyfile("\n\n".join(texts))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=7)
