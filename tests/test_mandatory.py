"""What is missing on a machine is a reason to skip a test, and in CI a failure."""

from __future__ import annotations

import pytest

from tests.mandatory import unavailable


@pytest.mark.parametrize("ci", ["", "0", "false"])
def test_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.skip.Exception, match="no Slurm here"):
        unavailable("no Slurm here")


@pytest.mark.parametrize("ci", ["1", "true", "True"])
def test_a_failure_where_it_must_run(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.fail.Exception, match="CI=true, and this must run: no Slurm here"):
        unavailable("no Slurm here")
