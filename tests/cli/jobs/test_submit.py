"""`vgpu submit`: what becomes of its options and its file, what is refused before anything is queued, and waiting."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.fake_queue import wait_until
from vgpud.cli.common.client import Client
from vgpud.cli.jobs import job_file, submit
from vgpud.core.queue import check
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.spans import format_span, parse_span

GIB = 1 << 30
USAGE, NOT_FOUND, NO_CAPACITY = 2, 4, 6


def one_line(text: str) -> str:
    assert text.startswith("vgpu: "), text
    assert text.count("\n") == 1, text
    return text


def submitted_spec(daemon: Any) -> Any:
    (request,) = daemon.queue.requests
    assert request.request_id
    return request.spec


@pytest.mark.parametrize("words", [(), ("--array", "1-3"), ("--wait",)])
def test_a_lost_answer_is_asked_for_again_under_the_same_id(vgpu: Any, daemon: Any, words: tuple[str, ...]) -> None:
    daemon.queue.lost_answers = 6
    daemon.queue.first_state = "completed"
    result = vgpu("submit", "--gpus", "0.5", *words, "--", "true", host=daemon.host)
    assert (result.code, result.stdout) == (0, "1-3\n" if "--array" in words else "1\n"), result
    assert len(daemon.queue.jobs) == (3 if "--array" in words else 1)
    assert len(daemon.queue.requests) == 7
    assert len({request.request_id for request in daemon.queue.requests}) == 1


@pytest.mark.parametrize(("words", "codes"), [((), (3, 7)), (("--wait",), (125,))])
def test_a_client_that_gives_up_says_how_to_ask_again(
    vgpu: Any, daemon: Any, words: tuple[str, ...], codes: tuple[int, ...]
) -> None:
    daemon.queue.lost_answers = 10_000
    command = ("--gpus", "0.5", *words, "--", "true")
    result = vgpu("--timeout", "0.5", "submit", *command, host=daemon.host)
    assert result.code in codes, result
    (request_id,) = {request.request_id for request in daemon.queue.requests}
    hint = f"it may have been accepted: `vgpu submit --request-id {request_id} ...` asks again"
    assert hint in one_line(result.stderr)
    daemon.queue.lost_answers = 0
    daemon.queue.change(1, state="completed")
    again = vgpu("submit", "--request-id", request_id, *command, host=daemon.host)
    assert (again.code, again.stdout) == (0, "1\n")
    assert len(daemon.queue.jobs) == 1


def test_a_refusal_is_no_lost_answer(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "9", "--", "true", host=daemon.host)
    assert result.code == NO_CAPACITY
    assert "accepted" not in one_line(result.stderr)
    assert len(daemon.queue.requests) == 1


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 129, "a\n", "\u00e9"])
def test_a_request_id_is_checked(vgpu: Any, daemon: Any, request_id: str) -> None:
    result = vgpu("submit", "--gpus", "1", "--request-id", request_id, "--", "true", host=daemon.host)
    assert result.code == USAGE
    assert "is not a request's ID" in one_line(result.stderr)
    assert not daemon.queue.requests


def test_a_job_that_is_queued_has_its_number_printed_whatever_follows(
    vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self: Client, call: Any) -> Any:
        if call.method == "GetJob":
            error = CliError("the daemon does not answer", ExitCode.UNREACHABLE)
            error.is_unanswered = True
            raise error
        return real_send(self, call)

    real_send = Client.send
    monkeypatch.setattr(Client, "send", send)
    result = vgpu("submit", "--gpus", "0.5", "--", "true", host=daemon.host)
    assert (result.code, result.stdout) == (0, "1\n")
    assert "queued; its state is not known: the daemon does not answer" in one_line(result.stderr)


def test_all_options_reach_the_api(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    share = "--gpus 0.5 --min 0.3 --max 0.8 --mem-min 4G --mem-max 8G --class latency --weight 3 --spread 1 --device 0"
    job = "--gang 4 --cpus 2.5 --ram 16G --name train --priority -7 --time-limit 2h30m --expected 90m --retries 2"
    more = "--after 3,4 --after-any --array 2-9 --hold --log out-%j --env A=1=2 --env B= --skew 0.25 --no-preempt"
    words = f"{share} {job} {more} -C {tmp_path} --image my/image:1".split()
    result = vgpu("submit", *words, "--", "python", "-c", "print( 1 )", host=daemon.host)
    assert (result.code, result.stdout) == (0, "1-8\n")
    spec = submitted_spec(daemon)
    slice_ = spec.slice
    assert (slice_.gpus_milli, slice_.min_milli, slice_.max_milli) == (500, 300, 800)
    assert (slice_.mem_min_bytes, slice_.mem_max_bytes, slice_.service_class) == (
        4 * GIB,
        8 * GIB,
        pb.SERVICE_CLASS_LATENCY,
    )
    assert (slice_.weight, slice_.spread, slice_.priority) == (3, 1, 0)
    assert list(slice_.device_uuids) == [daemon.devices[0].uuid]
    assert (spec.members, spec.cpu_milli, spec.ram_bytes, spec.name, spec.priority) == (4, 2500, 16 * GIB, "train", -7)
    assert (spec.time_limit.seconds, spec.expected_duration.seconds, spec.retries) == (9000, 5400, 2)
    assert (list(spec.after), list(spec.after_end), list(spec.array_indices), spec.hold) == (
        [],
        [3, 4],
        list(range(2, 10)),
        True,
    )
    assert (spec.log, spec.skew, spec.not_preemptible, spec.image) == ("out-%j", 0.25, True, "my/image:1")
    assert list(spec.command) == ["python", "-c", "print( 1 )"]
    assert spec.directory == str(tmp_path)
    assert (spec.environment["A"], spec.environment["B"]) == ("1=2", "")
    assert not spec.limits  # the daemon asks the kernel for them


def test_only_what_is_said_is_sent(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    mask = os.umask(0o027)
    try:
        result = vgpu("submit", "--gpus", "2.5", "true", host=daemon.host)
    finally:
        assert os.umask(mask) == 0o027
    assert result.code == 0
    spec = submitted_spec(daemon)
    assert (spec.members, spec.umask, spec.directory, spec.queue) == (1, 0o027, os.getcwd(), "")
    assert not spec.HasField("time_limit") and not spec.slice.HasField("min_milli")
    assert spec.environment["FROM_HERE"] == "yes"
    assert spec.environment == dict(os.environ)


def test_no_env_leaves_little(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("HOME", "/home/a")
    assert vgpu("submit", "--gpus", "1", "--no-env", "--env", "B=2", "true", host=daemon.host).code == 0
    environment = submitted_spec(daemon).environment
    assert (environment["HOME"], environment["B"]) == ("/home/a", "2")
    assert "SECRET" not in environment


def test_an_image_gets_named_variables_only(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from here")
    words = ("--image", "my/image", "--env", "A=1", "--env", "TOKEN")
    assert vgpu("submit", "--gpus", "1", *words, host=daemon.host).code == 0
    assert submitted_spec(daemon).environment == {"A": "1", "TOKEN": "from here"}


def test_a_variable_that_is_no_text_is_left_out_and_said(
    vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"caf\xe9"))
    result = vgpu("submit", "-q", "--gpus", "1", "true", host=daemon.host)
    assert result.code == 0
    assert "ODD" in one_line(result.stderr)
    assert "ODD" not in submitted_spec(daemon).environment


def test_what_is_said_of_a_job_that_waits_and_of_one_that_runs(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "0.5", "--name", "train", "true", host=daemon.host)
    assert result.stdout == "1\n"
    assert result.stderr == "vgpu: job 1 (train) is pending: no room: 0.5 GPUs asked, device 0 has 0.25 free\n"
    daemon.queue.first_state, daemon.queue.first_reason = "running", ""
    result = vgpu("submit", "--gpus", "0.5", "--name", "train", "true", host=daemon.host)
    assert result.stderr == f"vgpu: job 2 (train) is running, its output goes to {os.getcwd()}/vgpu-2.log\n"
    result = vgpu("submit", "-q", "--gpus", "0.5", "true", host=daemon.host)
    assert (result.stdout, result.stderr) == ("3\n", "")


def test_an_array_says_its_numbers(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "0.5", "--array", "1-3", "true", host=daemon.host)
    assert result.stdout == "1-3\n"
    assert "3 jobs, 1 to 3" in result.stderr and "cancel 1-3" in result.stderr
    result = vgpu("submit", "-o", "name", "--gpus", "0.5", "--array", "1-3", "true", host=daemon.host)
    assert result.stdout == "4\n5\n6\n"
    answer = vgpu("submit", "-o", "json", "--gpus", "0.5", "--array", "1-2", "true", host=daemon.host).json
    assert (answer["schema_version"], answer["job_ids"], answer["job"]["array_index"]) == (1, [7, 8], 1)


BAD: list[tuple[tuple[str, ...], str, int]] = [
    ((), "--gpus", USAGE),
    (("--gpus", "0"), "0 GPUs", USAGE),
    (("--gpus", "abc"), "abc", USAGE),
    (("--gpus", "17"), "17", USAGE),
    (("--gpus", "0.5", "--min", "0.8", "--max", "0.3"), "0.8", USAGE),
    (("--gpus", "0.5", "--mem", "8Q"), "8Q", USAGE),
    (("--gpus", "1", "--time-limit", "-5"), "-5", USAGE),
    (("--gpus", "1", "--time-limit", "0s"), "0s", USAGE),
    (("--gpus", "1", "--time-limit", "2h90"), "2h90", USAGE),
    (("--gpus", "1", "--time-limit", "nan"), "nan", USAGE),
    (("--gpus", "1", "--expected", "soon"), "soon", USAGE),
    (("--gpus", "1", "--retries", "-1"), "-1", USAGE),
    (("--gpus", "1", "--priority", "1001"), "1001", USAGE),
    (("--gpus", "1", "--after", "0"), "'0'", USAGE),
    (("--gpus", "1", "--after", "1,x"), "'x'", USAGE),
    (("--gpus", "1", "--array", "8-1"), "8-1", USAGE),
    (
        ("--gpus", "1", "--begin", "soon"),
        "'soon' is not a point in time: write for example 2h (from now), 16:00",
        USAGE,
    ),
    (("--gpus", "1", "--notify", "lunch"), "'lunch' is no event of a job: choose from start, end, failure", USAGE),
    (("--gpus", "1", "--notify", "end"), "--notify needs a way: --notify-mail, --notify-webhook or", USAGE),
    (
        ("--gpus", "1", "--notify-command", "no-such-program x"),
        "names no program that can be run: write its path",
        USAGE,
    ),
    (("--gpus", "1", "--notify-command", "'true"), "No closing quotation: close it", USAGE),
    (("--gpus", "1", "--begin", "25:00"), "'25:00' is not a point in time", USAGE),
    (("--gpus", "1", "--begin", "2020-01-01"), "'2020-01-01' is in the past: write a time that is to come", USAGE),
    (
        ("--gpus", "1", "--begin", "2150-01-01"),
        "'2150-01-01' is too far away: write a time before the year 2100",
        USAGE,
    ),
    (("--gpus", "1", "--begin", "99999999w"), "'99999999w' is not a point in time", USAGE),
    (("--gpus", "1", "--array", "x"), "'x' of the array 'x' is not a range: write for example 1-8, 1,3,5", USAGE),
    (("--gpus", "1", "--array", "1-9:0"), "step 0 of the array '1-9:0' is out of range: write 1 or more", USAGE),
    (("--gpus", "1", "--array", "1-4%0"), "'1-4%0' has no limit behind its %", USAGE),
    (("--gpus", "1", "--array", "1-4%x"), "'1-4%x' has no limit behind its %", USAGE),
    (("--gpus", "1", "--array", "1-4,3"), "the array '1-4,3' has index 3 twice: name each once", USAGE),
    (("--gpus", "1", "--array", "1,,2"), "'' of the array '1,,2' is not a range", USAGE),
    (("--gpus", "1", "--array", "-1"), "'-1' of the array '-1' is not a range", USAGE),
    (("--gpus", "1", "--array", "0-10000"), "has more than 10000 jobs: submit it in parts", USAGE),
    (("--gpus", "1", "--array", "4294967296"), "index 4294967296 of the array '4294967296' is out of range", USAGE),
    (("--gpus", "1", "--gang", "0"), "0", USAGE),
    (("--gpus", "1", "--gang", "1000000"), "1000000", USAGE),
    (("--gpus", "1", "--cpus", "-1"), "-1", USAGE),
    (("--gpus", "1", "--cpus", "0"), "'0'", USAGE),
    (("--gpus", "1", "--ram", "lots"), "lots", USAGE),
    (("--gpus", "1", "--skew", "2"), "2", USAGE),
    (("--gpus", "1", "--env", "NOT_SET_HERE"), "'NOT_SET_HERE'", USAGE),
    (("--gpus", "1", "--env", "=5"), "'=5'", USAGE),
    (("--gpus", "1", "--class", "fast"), "fast", USAGE),
    (("--gpus", "1", "--device", "7"), "'7'", NOT_FOUND),
    (("--gpus", "1", "--queue", "nobody"), "'nobody'", NOT_FOUND),
    (("--gpus", "1", "--gang", "9"), "a gang of 9", NO_CAPACITY),
    (("--gpus", "1", "--env", "BIG=" + "x" * 120_000, "--env", "MORE=" + "x" * 140_000), "--no-env", USAGE),
    (("-f", "/nowhere/job.toml"), "/nowhere/job.toml", USAGE),
]


@pytest.mark.parametrize(("words", "message", "code"), BAD)
def test_bad_input_is_one_line_and_nothing_is_queued(
    vgpu: Any, daemon: Any, words: tuple[str, ...], message: str, code: int
) -> None:
    result = vgpu("submit", *words, "--", "true", host=daemon.host)
    assert result.code == code, result
    assert message in one_line(result.stderr)
    assert (result.stdout, daemon.queue.jobs) == ("", {})


def test_nothing_to_run(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "1", host=daemon.host)
    assert result.code == USAGE
    assert "specify a command" in one_line(result.stderr)
    assert vgpu("submit", "--gpus", "1", "--image", "my/image", host=daemon.host).code == 0


def test_a_command_that_is_no_text(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "1", "--", os.fsdecode(b"caf\xe9"), host=daemon.host)
    assert result.code == USAGE
    assert "not UTF-8" in one_line(result.stderr)
    assert daemon.queue.jobs == {}


# ---- the job file ----

FILE = """\
# a comment
name = "from-file"
command = ["python", "train.py"]
gpus = 0.5
mem = "8G"
gang = 2
queue = "default"
time_limit = "1h"
after = [3, 4]
array = "1-4"
retries = 1
device = ["0"]
hold = true
after_any = false
no_preempt = true

[env]
A = "file"
B = "file"
"""


def test_a_job_file_is_the_options_and_flags_win(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(FILE)
    words = ("-f", str(path), "--gpus", "2", "--name", "mine", "--env", "B=flag", "--array", "1-2")
    result = vgpu("submit", *words, host=daemon.host)
    assert result.code == 0, result
    spec = submitted_spec(daemon)
    assert (spec.slice.gpus_milli, spec.name, list(spec.array_indices)) == (2000, "mine", [1, 2])
    assert (spec.slice.mem_min_bytes, spec.members, spec.time_limit.seconds, spec.retries) == (8 * GIB, 2, 3600, 1)
    assert (list(spec.after), spec.hold, spec.after_any, spec.not_preemptible) == ([3, 4], True, False, True)
    assert (spec.environment["A"], spec.environment["B"]) == ("file", "flag")
    assert list(spec.slice.device_uuids) == [daemon.devices[0].uuid]
    assert list(spec.command) == ["python", "train.py"]
    daemon.queue.requests.clear()
    assert vgpu("submit", "-f", str(path), "--", "other", host=daemon.host).code == 0
    assert list(submitted_spec(daemon).command) == ["other"]


def test_a_command_as_a_text_is_the_shells(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("gpus = '0.25'\ncommand = 'make && ./train | tee log'\n")
    assert vgpu("submit", "-f", str(path), host=daemon.host).code == 0
    assert list(submitted_spec(daemon).command) == ["/bin/sh", "-c", "make && ./train | tee log"]


def test_the_documents_job_file_has_every_key_and_are_valid(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    document = (Path(__file__).parents[3] / "docs/queue.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", document, re.DOTALL)
    named = set(re.findall(r"^#?(\w+) = ", block, re.MULTILINE)) - {"BATCH"} | {"env"}
    context = click.Context(submit.submit)
    assert named == {*job_file._Reader(Path("x"), "", context).options, "command", "env"}
    path = tmp_path / "job.toml"
    path.write_text(block)
    daemon.queue.queues["team"] = pb.Queue(name="team")
    assert vgpu("submit", "-f", str(path), host=daemon.host).code == 0
    spec = submitted_spec(daemon)
    assert (spec.name, spec.members, spec.environment) == ("train", 4, {"BATCH": "64"})


BAD_FILES = [
    ("gpu = 1\n", "line 1: there is no key 'gpu': did you mean 'gpus'?"),
    ("gpus = 1\n\ntimelimit = '1h'\n", "line 3: there is no key 'timelimit': did you mean 'time_limit'?"),
    ("gpus = 1\n[evn]\nA = '1'\n", "line 2: there is no key 'evn': did you mean 'env'?"),
    ("gpus = 1\nqzx = 1\n", "line 2: there is no key 'qzx': there are "),
    ("gpus = 1\ntime_limit = '-5'\n", "line 2: time_limit: '-5' is not a time"),
    ("gpus = -1\n", "line 1: gpus: '-1' is not a number of GPUs"),
    ("gpus = true\n", "line 1: gpus = True is neither"),
    ("gpus = [1]\n", "line 1: gpus takes one value"),
    ("gpus = 1\narray = '1-'\n", "line 2: array: '1-' of the array '1-' is not a range"),
    ("gpus = 1\nhold = 'yes'\n", "line 2: hold = 'yes' is neither true nor false"),
    ("gpus = 1\ncommand = []\n", "line 2: command is a list"),
    ("gpus = 1\ncommand = 5\n", "line 2: command is a list"),
    ("gpus = 1\nenv = 5\n", "line 2: env is a table"),
    ("gpus = 1\n[env]\nA = 5\n", "line 3: env.A = 5 is not a string"),
    ("gpus = 1\nwait = true\n", "line 2: there is no key 'wait'"),
    ("gpus = 1\ngpus = 2\n", "is not TOML"),
    ("gpus = = 1\n", "is not TOML"),
    ("gpus = " + "[" * 5000, "line 1: tables and lists are nested more than 32 deep"),
    ("gpus = 1\n" + "a." * 200_000 + "b = 1\n", "line 2: a key has more than 16 parts"),
    ("gpus = 1\n[" + "a." * 200_000 + "b]\n", "line 2: a key has more than 16 parts"),
    ("gpus = 1\n" + "a" * 400_000 + " = 1\n", "line 2: a key or number has 400000 characters"),
    ("#" * (1 << 20), "has more than 512 KiB"),
    ("gpus = 1\nafter = [{a = 1}]\n", "line 2: after = {'a': 1} is neither"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_a_wrong_job_file_names_its_line(vgpu: Any, daemon: Any, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    result = vgpu("submit", "-f", str(path), "--", "true", host=daemon.host)
    assert result.code == USAGE, result
    assert message in one_line(result.stderr)
    assert str(path) in result.stderr
    assert daemon.queue.jobs == {}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (1 << 20) + b"#"])
def test_a_file_that_is_no_job_file(vgpu: Any, daemon: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    result = vgpu("submit", "-f", str(path), "true", host=daemon.host)
    assert result.code == USAGE
    assert str(path) in one_line(result.stderr)


# ---- times ----


@pytest.mark.parametrize(
    ("text", "span_ns"),
    [("90", 90), ("90s", 90), ("45m", 2700), ("2h30m", 9000), ("1d12h", 129_600), ("1w", 604_800), ("1.5h", 5400)],
)
def test_times(text: str, span_ns: int) -> None:
    assert parse_span(text) == span_ns * 10**9
    assert parse_span(format_span(span_ns * 10**9)) == span_ns * 10**9


@pytest.mark.parametrize("text", ["", "h", "5x", "30m2h", "1h1h", "-1h", "1e3", "inf", "1 h", "1h 5m", "9" * 30])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_span(text)


def test_times_are_shown_exactly() -> None:
    shown = {9000: "2h30m", 45: "45s", 86_400: "1d", 0: "0s", 691_200: "8d", 61: "1m1s"}
    assert {s: format_span(s * 10**9) for s in shown} == shown
    assert format_span(1_500_000_000) == "1.5s"


# ---- waiting ----


def end_later(daemon: Any, job_id: int, **how: Any) -> threading.Thread:
    def act() -> None:
        wait_until(lambda: job_id in daemon.queue.jobs)
        daemon.queue.change(job_id, state="running", reason="")
        daemon.queue.end(job_id, **how)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"code": 0}, 0),
        ({"code": 7}, 7),
        ({"code": 143}, 143),
        ({"code": -1, "state": "cancelled"}, 130),
        ({"code": 0, "state": "timed_out"}, 124),
        ({"code": -1, "state": "failed"}, 1),
    ],
)
def test_wait_exits_as_the_job_does(vgpu: Any, daemon: Any, how: dict[str, Any], code: int) -> None:
    thread = end_later(daemon, 1, **how)
    result = vgpu("submit", "--wait", "-q", "--gpus", "1", "true", host=daemon.host)
    thread.join()
    assert (result.code, result.stdout) == (code, "1\n"), result


def test_wait_with_a_failure_of_its_own_is_125(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--wait", "--gpus", "1", "--queue", "nobody", "true", host=daemon.host)
    assert result.code == 125
    assert vgpu("submit", "--gpus", "1", "--queue", "nobody", "true", host=daemon.host).code == NOT_FOUND


def test_ctrl_c_leaves_the_job_and_says_how_to_end_it(daemon: Any) -> None:
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", daemon.host, "submit", "--wait", "--gpus", "1", "true"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: 1 in daemon.queue.jobs)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    process.wait(30)
    stderr_text = process.stderr.read()
    assert process.returncode == 130
    assert "vgpu job cancel 1" in stderr_text
    assert daemon.queue.jobs[1].state == pb.JOB_STATE_PENDING


@pytest.mark.parametrize("command", [("submit", "--gpus", "1", "true"), ("job", "ls"), ("queue", "ls"), ("usage",)])
def test_without_a_daemon(vgpu: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    result = vgpu(*command, host=f"unix://{tmp_path}/vgpud.sock")
    assert result.code == 3
    assert "vgpud serve" in one_line(result.stderr)


def test_bounds_are_the_queues() -> None:
    for name in ("MEMBERS_MAX", "RETRIES_MAX", "PRIORITY_MAX"):
        assert getattr(submit, name) == getattr(check, name)


def test_help_imports_neither_grpc_nor_protobuf() -> None:
    look = (
        "import sys; from vgpud.cli.main import invoke\n"
        "for words in (['submit'], ['job', 'ls'], ['job', 'wait'], ['queue', 'set'], ['usage']):\n"
        "    assert invoke([*words, '--help']) == 0\n"
        "sys.exit(', '.join(sorted({m for m in sys.modules if m in ('grpc', 'google.protobuf', 'rich')})) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


# ---- elastic jobs ----


def test_elastic_gpus_reach_the_api(vgpu: Any, daemon: Any) -> None:
    result = vgpu("submit", "--gpus", "0.25..1.0", "--", "x", host=daemon.host)
    assert (result.code, result.stdout) == (0, "1\n")
    spec = submitted_spec(daemon)
    assert (spec.slice.gpus_milli, spec.members) == (250, 1)
    assert (spec.elastic.gpus_milli_min, spec.elastic.gpus_milli_max, spec.elastic.workers_max) == (250, 1000, 0)


def test_equal_bounds_are_not_elastic(vgpu: Any, daemon: Any) -> None:
    assert vgpu("submit", "--gpus", "0.5..0.5", "--", "x", host=daemon.host).code == 0
    spec = submitted_spec(daemon)
    assert spec.slice.gpus_milli == 500
    assert not spec.HasField("elastic")


@pytest.mark.parametrize(
    ("words", "heuristic"),
    [
        ("--heuristic efficiency(0.2)", "efficiency(0.2)"),
        ("--utility linear,100,0.5,samples=5000000", "utility(linear,100,0.5,samples=5000000)"),
        ("", ""),
    ],
)
def test_workers_reach_the_api(vgpu: Any, daemon: Any, words: str, heuristic: str) -> None:
    asked = f"--gpus 1 --workers 2-8 --batch 64 --batch-max 512 {words}".split()
    assert vgpu("submit", *asked, "--", "x", host=daemon.host).code == 0
    spec = submitted_spec(daemon)
    elastic = spec.elastic
    assert (spec.slice.gpus_milli, spec.members) == (1000, 2)
    assert (elastic.workers_min, elastic.workers_max, elastic.gpus_milli_max) == (2, 8, 0)
    assert (elastic.batch, elastic.batch_max, elastic.heuristic) == (64, 512, heuristic)


def test_a_job_file_makes_elastic_jobs_too(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("gpus = 0.5\nworkers = '1-4'\nbatch = 32\nheuristic = 'fixed(2)'\ncommand = ['x']\n")
    assert vgpu("submit", "-f", str(path), host=daemon.host).code == 0
    elastic = submitted_spec(daemon).elastic
    assert (elastic.workers_min, elastic.workers_max, elastic.batch, elastic.heuristic) == (1, 4, 32, "fixed(2)")
    daemon.queue.requests.clear()
    path.write_text("gpus = '0.25..1'\ncommand = ['x']\n")
    assert vgpu("submit", "-f", str(path), host=daemon.host).code == 0
    assert submitted_spec(daemon).elastic.gpus_milli_max == 1000


INVALID_ELASTIC_SIZES = [
    ("--gpus 1..0.25", "the minimum first"),
    ("--gpus 0.5..2", "more than one device"),
    ("--gpus 0..1", "0 GPUs is too little"),
    ("--gpus 0.5..", "'' is not a number of GPUs"),
    ("--gpus 0.25..1 --min 0.1", "leave --min out"),
    ("--gpus 0.25..1 --min 0", "leave --min out"),
    ("--gpus 0.25..1 --max 1", "leave --max out"),
    ("--gpus 0.25..1 --gang 2", "leave --gang out"),
    ("--gpus 0.25..1 --workers 1-2", "use one of them"),
    ("--gpus 1 --workers 8-1", "the minimum first"),
    ("--gpus 1 --workers 0-1", "from 1 to 1024"),
    ("--gpus 1 --workers 1-2000", "from 1 to 1024"),
    ("--gpus 1 --workers many", "is not a number of workers"),
    ("--gpus 1 --workers 1-2 --gang 2", "use one of them"),
    ("--gpus 1 --workers 1-2 --image a/b", "without --image"),
    ("--gpus 1 --batch 64", "--batch refines --workers"),
    ("--gpus 1 --batch-max 64", "--batch-max refines --workers"),
    ("--gpus 1 --heuristic fixed(2)", "--heuristic refines --workers"),
    ("--gpus 1 --workers 1-2 --batch-max 64", "--batch-max needs a --batch"),
    ("--gpus 1 --workers 1-2 --batch 128 --batch-max 64", "--batch-max needs a --batch"),
    ("--gpus 1 --workers 1-2 --heuristic fixed(2) --utility linear", "use one of them"),
    ("--gpus 1 --workers 1-2 --heuristic gess(2)", "there is no heuristic 'gess'"),
    ("--gpus 1 --workers 1-2 --utility steps,1,50,100,4,samples=9", "must not rise with time"),
    ("--gpus 1 --workers 1-2 --utility linear,1,1", "how many samples"),
    ("--workers 1-2", "specify a size"),
    ("--gpus 1 --optimizer adam", "give --predict MODEL"),
]


@pytest.mark.parametrize(("words", "message"), INVALID_ELASTIC_SIZES)
def test_elastic_sizes_that_are_invalid_are_refused_before_anything_is_sent(
    vgpu: Any, daemon: Any, words: str, message: str
) -> None:
    result = vgpu("submit", *words.split(), "--", "x", host=daemon.host)
    assert result.code == USAGE
    assert message in one_line(result.stderr)
    assert daemon.queue.requests == []


def test_what_was_predicted_is_said_and_goes_along(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(settings: Any, fields: dict[str, Any]) -> str:
        fields["gpus"], fields["mem"] = 350, 8 * GIB
        fields["prediction"] = pb.Prediction(model=fields.pop("predict"), utilisation=pb.Range(value=0.35, high=0.5))
        return "net:make uses 35 % of one h200: --gpus 0.35"

    monkeypatch.setattr(submit, "fill", fill)
    result = vgpu("submit", "--predict", "net:make", "--", "x", host=daemon.host)
    assert result.code == 0
    assert result.stderr.startswith("vgpu: net:make uses 35 % of one h200: --gpus 0.35\n")
    spec = submitted_spec(daemon)
    assert (spec.slice.gpus_milli, spec.slice.mem_min_bytes, spec.slice.mem_max_bytes) == (350, 8 * GIB, 8 * GIB)
    assert (spec.prediction.model, spec.prediction.utilisation.value) == ("net:make", 0.35)
    daemon.queue.requests.clear()
    assert "uses" not in vgpu("submit", "-q", "--predict", "net:make", "--", "x", host=daemon.host).stderr
