"""The end of pytest's report: how long the tests of each folder took, and which files took longer than they may."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

#: of a file's tests that are not marked slow, together: a file is run by one worker, so the longest ones make the end
#: of a run. What takes more is reported and fails nothing: on a busy machine any file may.
FILE_BUDGET_S = 60.0


def _reports(stats: dict[str, list[object]]) -> Iterator[pytest.TestReport]:
    for reports in stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))


def _folder(nodeid: str) -> str:
    parts = nodeid.split("::")[0].split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Durations are summed over setup, call and teardown, and over the workers: more than the run has taken."""
    folders: dict[str, float] = defaultdict(float)
    cases: dict[str, set[str]] = defaultdict(set)
    files: dict[str, float] = defaultdict(float)
    for report in _reports(terminalreporter.stats):
        folder = _folder(report.nodeid)
        folders[folder] += report.duration
        cases[folder].add(report.nodeid)
        if "slow" not in report.keywords:
            files[report.nodeid.split("::")[0]] += report.duration
    if len(files) < 2:
        return
    whole = sum(folders.values())
    terminalreporter.section("time of each folder")
    for folder, seconds in sorted(folders.items(), key=lambda item: -item[1]):
        share = seconds / whole if whole else 0.0
        terminalreporter.line(f"{seconds:8.1f} s {share:6.1%} {len(cases[folder]):6} cases  {folder}")
    for name, seconds in sorted(files.items(), key=lambda item: -item[1]):
        if seconds > FILE_BUDGET_S:
            terminalreporter.line(f"more than {FILE_BUDGET_S:.0f} s without the mark slow: {name} ({seconds:.0f} s)")
