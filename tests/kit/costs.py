"""What the tests cost: CPU time by file, of the test processes and of every child that they have waited for.

Time on the clock says little where tests wait for brokers and for each other; the suite's bound is CPU time
(CONTRIBUTING.md). A child counts where it is waited for: a broker of a fixture is on the account of the test
after which that fixture ends.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Mapping

import pytest

KEY = "cpu_s_by_file"
SHOWN = 10
"""Files in the report."""
WORTH_A_REPORT_S = 60


def cpu_s() -> float:
    """Return seconds of CPU of this process, with the children that have ended."""
    return sum(os.times()[:4])


def report(by_file: Mapping[str, float], count: int = SHOWN) -> list[str]:
    """Return the sum and the costliest files, a line each.

    >>> report({"tests/a.py": 90.0, "tests/b.py": 30.0}, count=1)
    ['2.0 minutes of CPU, 2 files; most of it:', '    90 s   75 %  tests/a.py']
    """
    total = sum(by_file.values())
    shown = sorted(by_file.items(), key=lambda each: -each[1])[:count]
    return [
        f"{total / 60:.1f} minutes of CPU, {len(by_file)} files; most of it:",
        *(f"{s:>6.0f} s  {100 * s / total:>3.0f} %  {path}" for path, s in shown),
    ]


class Costs:
    """A plug-in: in a worker process it measures, in the one above it adds up."""

    def __init__(self) -> None:
        self._by_file: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        begin = cpu_s()
        try:
            return (yield)
        finally:
            self._by_file[item.nodeid.partition("::")[0]] += cpu_s() - begin

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[KEY] = dict(self._by_file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        for path, s in getattr(node, "workeroutput", {}).get(KEY, {}).items():
            self._by_file[path] += s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        asked = terminalreporter.config.getoption("costs")
        if asked or sum(self._by_file.values()) >= WORTH_A_REPORT_S:
            for line in report(self._by_file, asked or SHOWN):
                terminalreporter.write_line(line)
