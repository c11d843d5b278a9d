"""What goes to a terminal keeps within its width, without a word broken; a pipe gets it whole."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import click
import pytest

from tests.cli.fake_server import GIB, NODE, uuid_of
from tests.cli.test_main import all_commands
from vgpud.cli.main import cli
from vgpud.cluster.shell import published
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.user_names import user_name

Terminal = Callable[..., list[str]]

REASON = (
    "no device has 0.5 GPU and 70.2GiB free: device 0 of testnode has the most free: 0.25 GPU and 35.1GiB;"
    " it waits for job 3"
)
LISTS = ("status", "ps", "gpu ls", "slice ls", "slice show train-a", "events", "job ls", "job show 3", "explain 7")
MORE_LISTS = (
    "job show 7",
    "history slice train-a",
    "queue ls",
    "usage",
    "usage --by job",
    "version",
    "job top -n 1",
    "top -n 1 -d 0.1",
)
TABLES = ("status", "ps", "gpu ls", "slice ls", "events", "job ls", "queue ls", "reserve ls", "usage", "context ls")
TABLES += ("usage --by job", "usage --by queue", "version", "cluster ls", "cluster queues")
#: what a controller publishes: a job that waits for long names, and a queue
CLUSTER = {
    "partition": "gpu",
    "at_s": 1_700_000_000,
    "jobs": [
        {"slurm_id": "12_3", "queue": "a-long-account-of-slurm", "uid": os.getuid(), "gpus_milli": 500, "members": 4}
        | {"state": "pending", "nodes": [], "why": REASON}
    ],
    "jobs_left_out": 0,
    "refused": [],
    "queues": [
        {"name": "a-long-account-of-slurm", "parent": "another-long-account", "guarantee_milli": 2000}
        | {"limit_milli": None, "used_milli": 1500, "running": 3, "waiting": 12}
        | {"policy": "2d-las(3250,7200)", "placement": "throughput(20)"}
    ],
    "queues_file": None,
    "unusable_nodes": {},
    "foreign_jobs": 0,
}
FAILURES = (
    "slice show nothing",
    "job show 99",
    "submit --gpus 9 --queue nothing -- true",
    "slcie ls",
    "run --gpus",
)


@pytest.fixture
def busy(daemon: Any) -> Any:
    """A daemon with everything that makes rows long."""
    daemon.devices[0].drained = "the fan of this device is loud since Monday, please use the other devices meanwhile"
    spec = pb.SliceSpec(gpus_milli=500)
    item = pb.Slice(node=NODE, name="train-a", uid="u", spec=spec, owner_uid=os.getuid(), processes=2, queue="default")
    item.attach_socket = "/run/vgpu/slices/train-a/attach.sock"
    item.create_time.FromSeconds(1_700_000_000)
    item.devices.add(node=NODE, device_uuid=uuid_of(0), min_milli=500, max_milli=1000, mem_max_bytes=32 * GIB)
    item.containers.add(node=NODE, id="0123456789abcdef" * 4, pid=7)
    daemon.slices["train-a"] = item
    process = pb.Process(node=NODE, slice="train-a", pid=1234567, uid=os.getuid(), program="python3.11 -m train --all")
    process.attach_time.FromSeconds(1_700_000_000)
    process.devices.add(node=NODE, device_uuid=uuid_of(0), mem_used_bytes=5 * GIB, launches=123_456_789)
    daemon.processes.append(process)
    daemon.histories["train-a"] = pb.History(name="train-a", node=NODE, points=[pb.HistoryPoint(used_milli=400)])
    daemon._tell("attach.refused", "train-a", REASON)
    queue = daemon.queue
    queue.add(3, "running", device_indices=[0], slices=["j-3"])
    queue.jobs[3].start_time.FromSeconds(1_700_000_300)
    queue.add(7, "pending", reason=REASON)
    queue.jobs[7].spec.name = "a-name-of-a-job-that-goes-on-and-on"
    queue.facts = [pb.Fact(kind=pb.FACT_KIND_QUEUE, text=REASON)]
    queue.rows = [pb.Usage(job_id=3, uid=os.getuid(), queue="default", jobs=1)]
    (daemon.runtime / published.STATUS).write_text(json.dumps(CLUSTER))
    return daemon


def too_long(lines: list[str], width: int) -> list[str]:
    """Lines wider than the terminal, except a single word, which nothing can break."""
    return [line for line in lines if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize("width", [80, 50])
@pytest.mark.parametrize("command", [*LISTS, *MORE_LISTS, *FAILURES])
def test_lines_keep_within_the_terminal(command: str, width: int, on_a_terminal: Terminal, busy: Any) -> None:
    lines = on_a_terminal(width, *command.split(), host=busy.host)
    assert "".join(lines).strip()
    assert too_long(lines, width) == []


def test_a_long_reason_is_shown_whole_below_its_job(on_a_terminal: Terminal, vgpu: Any, busy: Any) -> None:
    lines = on_a_terminal(80, "job", "ls", host=busy.host)
    row = next(index for index, line in enumerate(lines) if line.split()[:1] == ["7"])
    assert " ".join(line.strip() for line in lines[row + 1 : row + 3]) == REASON
    (piped,) = [line for line in vgpu("job", "ls", host=busy.host).stdout.split("\n") if line.split()[:1] == ["7"]]
    assert piped.endswith(REASON)


def test_a_pipe_has_every_column(vgpu: Any, on_a_terminal: Terminal, busy: Any) -> None:
    assert "UUID" in vgpu("gpu", "ls", host=busy.host).stdout
    assert "UUID" not in on_a_terminal(80, "gpu", "ls", host=busy.host)[0].split()
    assert "UUID" in "\n".join(on_a_terminal(250, "gpu", "ls", host=busy.host))


def list_words(command: str, daemon: Any) -> list[str]:
    return [*command.split(), *(["--run-dir", str(daemon.runtime)] if command.startswith("cluster ") else [])]


@pytest.mark.parametrize("width", [80, 90, 120])
@pytest.mark.parametrize("command", TABLES)
def test_no_header_is_cut_and_no_column_is_lost_in_silence(
    command: str, width: int, vgpu: Any, on_a_terminal: Terminal, busy: Any
) -> None:
    """Columns that are left out are named below the table, texts on lines of their own by their title."""

    def is_header(line: str) -> bool:
        return len(line.split()) > 1 and all(word[0].isupper() and word == word.upper() for word in line.split())

    words = list_words(command, busy)
    whole = [line.split() for line in vgpu(*words, host=busy.host).stdout.split("\n") if is_header(line)]
    lines = on_a_terminal(width, *words, host=busy.host)
    shown = [line.split() for line in lines if is_header(line)]
    assert whole and len(shown) == len(whole)
    text = " ".join(" ".join(lines).split())
    remarks = re.findall(rf"vgpu: not shown in {width} columns: (.*?) \(-o json has all\)", text)
    named = {title for remark in remarks for title in remark.split(", ")}
    for titles, header in zip(whole, shown, strict=True):
        assert header == [title for title in titles if title in header]
        lost = [title for title in titles if title not in header and title not in named]
        assert all(f" {title.lower()}: " in text for title in lost), lost


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_queue_top_keeps_number_user_and_state(width: int, on_a_terminal: Terminal, busy: Any) -> None:
    text = "\n".join(on_a_terminal(width, "job", "top", "-n", "1", host=busy.host))
    rows = {words[0]: words for words in map(str.split, text.split("\n")) if words and words[0] in ("3", "7")}
    user = user_name(os.getuid())
    assert user in rows["3"] and "running" in rows["3"]
    assert user in rows["7"] and "pending" in rows["7"]


@pytest.mark.parametrize(("name", "command"), all_commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_help_keeps_within_the_terminal(name: str, command: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = command.get_help(click.Context(command, info_name=f"vgpu {name}", parent=None))
    assert too_long(text.split("\n"), 80) == []


def test_a_mistyped_command_gets_a_suggestion(vgpu: Any) -> None:
    assert "did you mean `vgpu status`?" in vgpu("stauts").stderr
    assert "did you mean `vgpu job cancel`?" in vgpu("cancel", "3").stderr
    assert "did you mean `vgpu slice show`?" in vgpu("slice", "shwo").stderr
    nothing = vgpu("xyzzy")
    assert nothing.code == 2 and "did you mean" not in nothing.stderr
    assert nothing.stderr.count("\n") == 1


def test_output_means_the_format_and_nothing_else_in_every_command() -> None:
    for name, command in all_commands():
        options = {opt: param for param in command.params for opt in param.opts}
        assert options["-o"] is options["--output"], name
        assert isinstance(options["-o"].type, click.Choice), name


def test_the_configuration_is_an_option_in_every_command() -> None:
    from vgpud.serve import main

    commands = {f"vgpu {name}": command for name, command in all_commands()} | dict(main.commands) | {"vgpu": cli}
    for name, command in commands.items():
        for param in command.params:
            named = {"config", "config_path", "file"} & {param.name}
            assert not (named and isinstance(param, click.Argument)), name
    assert all("--config" in main.commands[n].params[0].opts for n in ("serve", "check-config", "check-devices"))
