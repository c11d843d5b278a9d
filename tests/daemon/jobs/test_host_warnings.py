"""What every job would say of a host is said once to each user."""

from __future__ import annotations

from vgpud.daemon.jobs.host_warnings import HostWarnings


def test_each_user_has_a_warning_once() -> None:
    warnings = HostWarnings()
    given = [(1000, "no cgroup"), (1000, "no cgroup"), (1001, "no cgroup"), (1000, "no limit of RAM")]
    assert [warnings.is_new(uid, text) for uid, text in given] == [True, False, True, True]
