"""Commands that show and change slices, against a fake daemon: formats, names, pages, exit codes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
import yaml

from vgpud.errors import ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.user_names import user_name

GIB = 1 << 30


@pytest.fixture
def slices(vgpu: Any, daemon: Any) -> Any:
    """Two slices and a process whose name tries to write to the terminal."""
    for name, amount in (("train", "0.25"), ("serve", "0.5")):
        assert vgpu("slice", "create", name, "--gpus", amount, host=daemon.host).code == 0
    daemon.add_process("train", 4711, "evil\x1b[2Jname")
    return daemon


def test_lists_are_filtered_by_user_state_and_time(vgpu: Any, slices: Any) -> None:
    def names(*words: str) -> list[str]:
        result: str = vgpu(*words, "-o", "name", host=slices.host).stdout
        return result.split()

    slices.slices["serve"].owner_uid, slices.slices["serve"].suspended = 12345, pb.SUSPENSION_EVICTING
    assert names("slice", "ls", "-u", "12345") == ["serve"]
    assert names("slice", "ls", "--state", "evicted") == ["serve"]
    assert names("slice", "ls", "--state", "active,paused") == ["train"]
    assert names("slice", "ls", "--since", "2099-01-01") == []
    assert (
        names("ps") == names("ps", "--state", "active") == names("ps", "-u", str(slices.processes[0].uid)) == ["4711"]
    )
    assert names("ps", "-u", "12345") == names("ps", "--state", "idle") == names("ps", "--since", "2099-01-01") == []
    every = len(names("events"))
    assert every
    assert len(names("events", "--kind", "slice")) == every
    assert names("events", "--kind", "slic") == names("events", "--since", "2099-01-01") == []
    assert names("events", "-u", "12345") == []


def test_lists_say_whose_a_slice_is(vgpu: Any, slices: Any) -> None:
    item = slices.slices["train"]
    item.owner_uid, item.queue, item.job_id, item.job_name = 0, "team", 12, "fit it"
    slices.slices["serve"].owner_uid = 4294967294 - 7
    for command in (("slice", "ls"), ("status",)):
        rows = {
            line.split()[0]: line.split()[1:4] for line in vgpu(*command, host=slices.host).stdout.splitlines() if line
        }
        assert rows["train"] == ["root", "team", "12:fit-it"]
        assert rows["serve"] == ["uid:4294967287", "-", "-"], "a user without a name is no bare number"
    assert "for job 12:fit-it" in vgpu("slice", "show", "train", host=slices.host).stdout
    listed = vgpu("slice", "ls", "-o", "json", host=slices.host).json["slices"]
    assert {one["name"]: one["job_name"] for one in listed} == {"train": "fit it", "serve": None}


def test_refusals_name_users(vgpu: Any, daemon: Any) -> None:
    daemon.trace_denied = "slice 'a' does not belong to uid 0: ask uid 4294967287 or an admin"
    daemon.create("a")
    result = vgpu("trace", "a", "--out", "/dev/null", host=daemon.host)
    assert "slice 'a' does not belong to user root: ask uid 4294967287 or an admin" in result.stderr


def test_drain_waits_and_lists_what_still_runs(vgpu: Any, slices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    item = slices.slices["train"]
    item.queue, item.job_id, item.job_name = "team", 12, "fit"
    looks = iter(range(9))

    def sleep(seconds: float) -> None:
        if next(looks) == 1:
            item.processes = 0

    monkeypatch.setattr("vgpud.cli.slices.gpu.time.sleep", sleep)
    result = vgpu("gpu", "drain", "0", "--reason", "cabling", "--wait", host=slices.host)
    who = user_name(item.owner_uid)
    assert result.code == 0
    assert result.stderr.splitlines() == [
        "vgpu: device 0 is drained: cabling",
        f"vgpu: 1 program on device 0: slice train of {who} in queue team for 12:fit",
        "vgpu: no program is left on these devices",
    ]


@pytest.mark.parametrize(("programs", "code"), [(1, ExitCode.TIMED_OUT), (0, 0)])
def test_drain_waits_no_longer_than_its_deadline(
    vgpu: Any, slices: Any, monkeypatch: pytest.MonkeyPatch, programs: int, code: int
) -> None:
    """By the clock, of which each look takes an hour here: the last one counts."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += 3600
        if clock[0] >= 7200:
            slices.slices["train"].processes = programs

    monkeypatch.setattr("vgpud.cli.slices.gpu.time.sleep", sleep)
    monkeypatch.setattr("vgpud.cli.slices.gpu.time.monotonic", lambda: clock[0])
    result = vgpu("gpu", "drain", "0", "--reason", "cabling", "--wait", "--deadline", "2h", host=slices.host)
    assert (result.code, clock[0]) == (code, 7200)
    said = "programs are left on these devices after 2h: end them, or wait again; the devices stay drained"
    assert (said in result.stderr) == bool(programs)


def test_a_deadline_is_for_a_waiting_user(vgpu: Any, slices: Any) -> None:
    result = vgpu("gpu", "drain", "0", "--reason", "cabling", "--deadline", "2h", host=slices.host)
    assert result.code == ExitCode.USAGE and "--deadline" in result.stderr


def test_create_shows_the_four_resolved_numbers(vgpu: Any, daemon: Any) -> None:
    amounts = ("--gpus", "0.5", "--min", "0.3", "--max", "0.8", "--mem-min", "4G", "--mem-max", "8G")
    result = vgpu("slice", "create", "a", *amounts, "-o", "json", host=daemon.host)
    assert result.code == 0
    assert result.json["schema_version"] == 1
    device = result.json["slice"]["devices"][0]
    numbers = [device[f] for f in ("min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes")]
    assert numbers == [300, 800, 4 * GIB, 8 * GIB]
    request = daemon.requests[-1]
    assert request.request_id
    assert not request.ephemeral


def test_mem_sets_both_limits_and_unset_fields_stay_unset(vgpu: Any, daemon: Any) -> None:
    assert vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "8G", host=daemon.host).code == 0
    spec = daemon.requests[-1].spec
    assert (spec.mem_min_bytes, spec.mem_max_bytes) == (8 * GIB, 8 * GIB)
    assert not spec.HasField("min_milli")
    assert not spec.HasField("max_milli")


def test_set_sends_only_what_was_given(vgpu: Any, slices: Any) -> None:
    result = vgpu("slice", "set", "train", "--max", "0.9", "-o", "json", host=slices.host)
    assert result.code == 0
    assert result.json["slice"]["devices"][0]["max_milli"] == 900
    request = slices.requests[-1]
    assert (list(request.update_mask.paths), request.spec.gpus_milli) == (["max_milli"], 0)
    assert not request.spec.HasField("min_milli")
    assert result.json["slice"]["gpus_milli"] == 250


def test_set_takes_values_back(vgpu: Any, slices: Any) -> None:
    amounts = ("--max", "0.9", "--mem", "8G", "--weight", "5", "--class", "latency", "--priority", "7", "--spread", "1")
    assert vgpu("slice", "set", "train", *amounts, host=slices.host).code == 0
    back = [word if word.startswith("--") else "default" for word in amounts]
    result = vgpu("slice", "set", "train", *back, "-o", "json", host=slices.host)
    assert result.code == 0
    assert slices.slices["train"].spec == pb.SliceSpec(gpus_milli=250)
    shown = result.json["slice"]
    assert (shown["weight"], shown["priority"], shown["class"]) == (0, 0, "batch")


def test_class_and_priority_are_asked_for_and_shown(vgpu: Any, daemon: Any) -> None:
    shares = ("--class", "latency", "--priority", "5", "--weight", "3", "--spread", "1")
    assert vgpu("slice", "create", "a", "--gpus", "0.5", *shares, host=daemon.host).code == 0
    spec = daemon.requests[-1].spec
    assert (spec.service_class, spec.priority, spec.weight, spec.spread) == (pb.SERVICE_CLASS_LATENCY, 5, 3, 1)
    daemon.add_process("a", 4711, "serve")
    header, row = vgpu("ps", host=daemon.host).stdout.splitlines()
    columns = dict(zip(header.split(), row.split(), strict=False))
    assert (columns["CLASS"], columns["PRIO"]) == ("latency", "5")
    fields = vgpu("slice", "show", "a", host=daemon.host).stdout
    assert re.search(r"class\s+latency", fields) and re.search(r"priority\s+5", fields)


def test_every_row_of_a_simulated_device_says_so(vgpu: Any, slices: Any) -> None:
    for command in (
        ("ps",),
        ("gpu", "ls"),
        ("slice", "ls"),
        ("slice", "show", "train"),
        ("status",),
        ("version",),
        ("events",),
    ):
        result = vgpu(*command, host=slices.host)
        assert result.code == 0
        assert "SIMULATED" in result.stdout, command
    rows = vgpu("slice", "ls", "--no-headers", host=slices.host).stdout.splitlines()
    assert len(rows) == 2
    assert all("SIMULATED" in row for row in rows)


def test_a_real_device_does_not_say_simulated(vgpu: Any, tmp_path: Any) -> None:
    from tests.cli.fake_server import FakeDaemon

    with FakeDaemon(tmp_path, is_simulated=False) as real:
        vgpu("slice", "create", "a", "--gpus", "0.5", host=real.host)
        for command in (("gpu", "ls"), ("slice", "ls"), ("slice", "show", "a"), ("status",)):
            assert "SIMULATED" not in vgpu(*command, host=real.host).stdout


def test_ps_json_has_integers_and_rfc3339_times(vgpu: Any, slices: Any) -> None:
    process = vgpu("ps", "-o", "json", host=slices.host).json["processes"][0]
    assert process["pid"] == 4711
    assert process["attach_time"] == "2023-11-14T22:13:20Z"
    assert process["devices"][0]["mem_used_bytes"] == GIB
    assert process["devices"][0]["simulated"] is True


def test_ps_table_has_the_four_numbers_and_no_control_characters(vgpu: Any, slices: Any) -> None:
    result = vgpu("ps", host=slices.host)
    head, row = result.stdout.splitlines()
    names = ["PID", "USER", "SLICE", "CLASS", "PRIO", "DEVICE", "MIN", "MAX", "MEM-MIN", "MEM-MAX"]
    assert head.split()[:10] == names
    assert row.split()[3:10] == ["batch", "0", "0-SIMULATED", "0.25", "0.25", "16GiB", "16GiB"]
    assert "\x1b" not in result.stdout
    assert "evil\\x1b[2Jname" in row


def test_names_and_no_headers_are_for_scripts(vgpu: Any, slices: Any) -> None:
    assert vgpu("slice", "ls", "-o", "name", host=slices.host).stdout.split() == ["train", "serve"]
    assert vgpu("ps", "-o", "name", host=slices.host).stdout == "4711\n"
    with_titles = vgpu("slice", "ls", host=slices.host).stdout.splitlines()
    without = vgpu("slice", "ls", "--no-headers", host=slices.host).stdout.splitlines()
    assert len(with_titles) == len(without) + 1
    assert [line.split() for line in with_titles[1:]] == [line.split() for line in without]


def test_yaml_is_the_same_document_as_json(vgpu: Any, slices: Any) -> None:
    as_yaml = yaml.safe_load(vgpu("status", "-o", "yaml", host=slices.host).stdout)
    as_json = vgpu("-o", "json", "status", host=slices.host).json
    for document in (as_yaml, as_json):
        assert document["schema_version"] == 1
    assert as_yaml == as_json


def test_pages_are_followed(vgpu: Any, tmp_path: Any) -> None:
    from tests.cli.fake_server import FakeDaemon

    with FakeDaemon(tmp_path, devices=3) as many:
        assert len(vgpu("gpu", "ls", "-o", "name", host=many.host).stdout.split()) == 3


def test_a_slice_over_several_devices_has_a_row_for_each(vgpu: Any, tmp_path: Any) -> None:
    from tests.cli.fake_server import FakeDaemon

    with FakeDaemon(tmp_path, devices=3) as many:
        result = vgpu("slice", "create", "big", "--gpus", "2.5", "--no-headers", host=many.host)
    assert [row.split()[4] for row in result.stdout.splitlines()] == ["0-SIMULATED", "1-SIMULATED", "2-SIMULATED"]


def test_rm_removes_and_says_so_on_stderr(vgpu: Any, slices: Any) -> None:
    result = vgpu("slice", "rm", "serve", host=slices.host)
    assert (result.code, result.stdout) == (0, "")
    assert "serve" in result.stderr
    assert "serve" not in slices.slices


def test_rm_of_a_slice_in_use_is_a_conflict_unless_forced(vgpu: Any, slices: Any) -> None:
    result = vgpu("slice", "rm", "train", host=slices.host)
    assert result.code == 8
    assert "1 processes: end them or use --force" in result.stderr
    assert "train" in slices.slices
    assert vgpu("slice", "rm", "--force", "train", host=slices.host).code == 0


def test_events_of_one_slice_and_the_last(vgpu: Any, slices: Any) -> None:
    events = vgpu("events", "--slice", "serve", "-o", "json", host=slices.host).json["events"]
    assert [e["kind"] for e in events] == ["slice.created"]
    assert vgpu("events", "-n", "1", "-o", "name", host=slices.host).stdout == "2\n"
    assert vgpu("events", "-n", "0", "-o", "name", host=slices.host).stdout == ""


def test_events_follow_prints_each_as_it_comes(slices: Any) -> None:
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", slices.host, "events", "-f", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            old = [process.stdout.readline() for _ in range(2)]
            threading.Thread(target=lambda: slices._tell("slice.updated", "train", "more")).start()
            new = process.stdout.readline()
        finally:
            process.kill()
    assert all("slice.created" in line for line in old)
    assert "slice.updated" in new
    assert new.endswith("}\n")


def test_version_asks_client_and_daemon(vgpu: Any, daemon: Any) -> None:
    import vgpud
    from vgpud.client.held_slice import ABI_VERSION

    data = vgpu("version", "-o", "json", host=daemon.host).json
    assert data["client_version"] == vgpud.__version__
    assert (data["daemon_version"], data["daemon_abi_version"]) == ("9.9", ABI_VERSION)
    assert vgpu("version", "--client").code == 0


def test_version_without_a_daemon_shows_the_clients_and_says_so(vgpu: Any, tmp_path: Any) -> None:
    import vgpud

    result = vgpu("version", host=f"unix://{tmp_path}/none")
    assert result.code == 3
    assert result.stdout.splitlines()[1].split() == ["client", vgpud.__version__]
    assert "daemon" not in result.stdout and "vgpud serve" in result.stderr


def test_a_slow_daemon_is_a_timeout(vgpu: Any, daemon: Any) -> None:
    daemon.slow_s = 3
    result = vgpu("--timeout", "0.2", "gpu", "ls", host=daemon.host)
    assert result.code == 7
    assert "0.2 s" in result.stderr
    daemon.slow_s = 0


@pytest.mark.parametrize("command", [["events", "-f"], ["top", "-d", "0.2"]])
def test_ctrl_c_ends_what_continues_without_a_traceback(slices: Any, command: list[str]) -> None:
    whole = [sys.executable, "-m", "vgpud.cli.main", "--host", slices.host, *command]
    process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err.strip()) == (0 if command[0] == "top" else 130, "")


@pytest.mark.parametrize(("command", "code"), [(["events", "-f"], 130), (["top"], 0)])
def test_ctrl_c_is_no_fault_of_a_library_that_it_interrupts(
    slices: Any, vgpu: Any, monkeypatch: Any, command: list[str], code: int
) -> None:
    from vgpud.cli.common.client import Client

    def raise_interrupt(*_: Any) -> Any:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("cannot release a lock that is not held")

    monkeypatch.setattr(Client, "watch", raise_interrupt)
    result = vgpu(*command, host=slices.host)
    assert (result.code, result.stderr) == (code, "")


def test_containers_are_shown_by_what_engines_call_them(vgpu: Any, slices: Any) -> None:
    one, two = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    item = slices.slices["train"]
    item.containers.add(node=item.node, id=one, pid=4711, cgroup=f"/docker/{one}")
    item.containers.add(node=item.node, id=two)
    slices.processes[0].container = one
    lines = {line.split()[0]: line.split() for line in vgpu("slice", "ls", host=slices.host).stdout.splitlines()}
    column = lines["SLICE"].index("CONTAINER")
    assert lines["train"][column] == "0123456789ab+1"
    assert lines["serve"][column] == "-"
    title, row = (line.split() for line in vgpu("ps", host=slices.host).stdout.splitlines())
    assert row[title.index("CONTAINER")] == "0123456789ab"
    shown = vgpu("slice", "show", "train", host=slices.host).stdout
    assert f"/docker/{one}" in shown
    found = vgpu("slice", "show", "train", "-o", "json", host=slices.host).json["slice"]["containers"]
    assert [(c["id"], c["pid"]) for c in found] == [(one, 4711), (two, None)]
    (process,) = vgpu("ps", "-o", "json", host=slices.host).json["processes"]
    assert process["container"] == one


def test_a_claim_is_shown_by_its_name(vgpu: Any, slices: Any) -> None:
    slices.slices["train"].claim.MergeFrom(pb.Claim(uid="u-1", namespace="team", name="half"))
    for command in (("slice", "ls"), ("status",), ("slice", "show", "train")):
        assert "team/half" in vgpu(*command, host=slices.host).stdout, command
