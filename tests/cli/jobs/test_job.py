"""`vgpu job`: the tables and what they say of jobs that wait, what is done about jobs, their output, waiting."""

from __future__ import annotations

import datetime
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.cli.fake_queue import NODE, SUBMITTED_S, wait_until
from vgpud.cli.jobs import top, wait
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view import job_tables
from vgpud.view import jobs as job_views
from vgpud.view.fit import draw
from vgpud.view.user_names import user_name

OTHER, USAGE, NOT_FOUND, CONFLICT = 1, 2, 4, 8
NOW = datetime.datetime.fromtimestamp(SUBMITTED_S + 600, datetime.timezone.utc)
ME = user_name(os.getuid())


def at(seconds: int) -> Timestamp:
    return Timestamp(seconds=SUBMITTED_S + seconds)


def one_line(text: str) -> str:
    assert text.startswith("vgpu: "), text
    assert text.count("\n") == 1, text
    return text


@pytest.fixture
def queue(daemon: Any) -> Any:
    """A job of each kind."""
    fake = daemon.queue
    fake.add(1, "completed", start_time=at(60), end_time=at(120), exit_code=0)
    fake.add(2, "failed", start_time=at(60), end_time=at(61), exit_code=3, reason="it ended with exit code 3")
    fake.add(3, "running", start_time=at(300), device_indices=[0], slices=["j-3"])
    fake.add(4, "pending", reason="device 0 has 0.25 free", position=1)
    fake.jobs[4].estimated_start_time.CopyFrom(at(840))
    fake.add(5, "held", reason="it is held: release it with `vgpu job release 5`")
    fake.add(6, "suspended", start_time=at(100), reason="preempted by job 3", preemptions=1)
    gang = fake.add(7, "pending", reason="waits for job 4", array_id=7, array_index=2)
    gang.spec.members, gang.spec.name = 4, "evil\x1b[2J"
    return fake


def table(fake: Any, states: tuple[str, ...] = ()) -> str:
    """The table as it would be at NOW."""
    jobs = [job_views.job_view(job, frozenset({0})) for job in fake.jobs.values()]
    jobs = [job for job in jobs if job["state"] not in states]
    lines = draw(job_tables.jobs_grid(jobs, NOW), True, None).lines
    return "\n".join("".join(text for text, _ in line) for line in lines)


GOLDEN = """\
JOB  NAME            USER  QUEUE    STATE       GPUS  TIME  WHERE-OR-WHY
  1  train           ann   default  completed    0.5    1m  -
  2  train           ann   default  failed       0.5    1s  it ended with exit code 3
  3  train           ann   default  running      0.5    5m  device 0-SIMULATED
  4  train           ann   default  pending      0.5   10m  device 0 has 0.25 free (starts in about 4m)
  5  train           ann   default  held         0.5   10m  it is held: release it with `vgpu job release 5`
  6  train           ann   default  suspended    0.5    8m  preempted by job 3
  7  evil\\x1b[2J[2]  ann   default  pending    4x0.5   10m  waits for job 4"""


def test_the_table_says_where_or_why(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tables, "user_name", lambda uid: "ann")
    assert table(queue) == GOLDEN


def test_ls_shows_what_has_not_ended_and_all_with_a(vgpu: Any, daemon: Any, queue: Any) -> None:
    queue.page = 2  # the client follows the tokens
    assert vgpu("job", "ls", "-o", "name", host=daemon.host).stdout.split() == ["3", "4", "5", "6", "7"]
    assert vgpu("job", "ls", "-a", "-o", "name", host=daemon.host).stdout.split() == list("1234567")
    assert vgpu("job", "ls", "-a", "-n", "2", "-o", "name", host=daemon.host).stdout.split() == ["6", "7"]
    assert vgpu("job", "ls", "--queue", "none", "-o", "name", host=daemon.host).stdout == ""
    result = vgpu("job", "ls", host=daemon.host)
    assert "SIMULATED" in result.stdout and "\x1b" not in result.stdout
    queue.jobs[3].uid = 12345
    assert "12345" in vgpu("job", "ls", host=daemon.host).stdout
    assert vgpu("job", "ls", "--mine", "-o", "name", host=daemon.host).stdout.split() == ["4", "5", "6", "7"]


def test_ls_that_shows_nothing_says_where_ended_jobs_are(vgpu: Any, daemon: Any, queue: Any) -> None:
    queue.jobs.clear()
    assert "-a lists those that have ended as well" in vgpu("job", "ls", host=daemon.host).stderr
    for words in (("-a",), ("-o", "name"), ("--state", "failed")):
        assert vgpu("job", "ls", *words, host=daemon.host).stderr == ""


def test_ls_sends_its_filters(vgpu: Any, daemon: Any, queue: Any) -> None:
    moment = "2023-11-14T22:13:20+00:00"
    words = ("--state", "failed,TIMED-OUT", "--since", moment, "-u", "0")
    assert vgpu("job", "ls", *words, host=daemon.host).code == 0
    request = queue.requests[-1]
    assert (request.uid, list(request.states), request.since_time.seconds) == (
        0,
        [pb.JOB_STATE_FAILED, pb.JOB_STATE_TIMED_OUT],
        SUBMITTED_S,
    )
    assert vgpu("job", "ls", host=daemon.host).code == 0
    assert not queue.requests[-1].HasField("uid")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("job", "ls", "--state", "lost"), "there is no state 'lost': choose from pending, held"),
        (("job", "ls", "-u", "no-such-user"), "there is no user 'no-such-user': give a user name or a uid"),
        (("job", "ls", "--since", "soon"), "'soon' is not a point in time: write for example 7d (ago)"),
        (("job", "ls", "--mine", "-u", "4294967294"), "--mine and --user name different users: leave one out"),
        (("slice", "ls", "--state", "running"), "there is no state 'running': choose from active, idle"),
        (("ps", "-u", "no-such-user"), "there is no user 'no-such-user'"),
        (("events", "--since", "x"), "'x' is not a point in time"),
        (("usage", "--state", "failed"), "--state is for single jobs: add --by job"),
    ],
)
def test_filters_that_are_refused(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu(*words, host=daemon.host)
    assert result.code == USAGE
    assert message in one_line(result.stderr)


def test_set_sends_what_changes(vgpu: Any, daemon: Any, queue: Any) -> None:
    words = ("--priority", "-5", "--gpus", "0.25", "--mem", "4G", "--queue", "team", "--time-limit", "2h")
    result = vgpu("job", "set", "4", "5", *words, host=daemon.host)
    assert (result.code, result.stderr) == (0, "vgpu: job 4 changed\nvgpu: job 5 changed\n")
    request = queue.requests[-1]
    fields = ["slice.gpus_milli", "slice.mem_min_bytes", "slice.mem_max_bytes", "priority", "queue", "time_limit"]
    assert (request.job_id, list(request.update_mask.paths)) == (5, fields)
    assert (request.spec.priority, request.spec.time_limit.seconds, request.spec.queue) == (-5, 7200, "team")
    assert (request.spec.slice.gpus_milli, request.spec.slice.mem_max_bytes) == (250, 4 << 30)
    assert vgpu("job", "set", "4", "--time-limit", "default", "--gang", "default", host=daemon.host).code == 0
    request = queue.requests[-1]
    assert list(request.update_mask.paths) == ["members", "time_limit"]
    assert not request.spec.HasField("time_limit")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "specify a change: for example --priority 5"),
        (("--priority", "1001"), "1001"),
        (("--time-limit", "soon"), "'soon' is not a time: write for example 90s"),
        (("--gpus", "x"), "'x' is not a number of GPUs"),
        (("--mem", "4G", "--mem-max", "5G"), "--mem sets both limits"),
    ],
)
def test_changes_that_are_refused(vgpu: Any, daemon: Any, queue: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("job", "set", "4", *words, host=daemon.host)
    assert result.code == USAGE
    assert message in one_line(result.stderr)


def test_json_has_integers_and_times(vgpu: Any, daemon: Any, queue: Any) -> None:
    answer = vgpu("job", "ls", "-a", "-o", "json", host=daemon.host).json
    jobs = {job["job_id"]: job for job in answer["jobs"]}
    assert answer["schema_version"] == 1
    assert (jobs[1]["state"], jobs[1]["exit_code"], jobs[3]["exit_code"]) == ("completed", 0, None)
    assert jobs[4]["submit_time"] == "2023-11-14T22:13:20Z"
    assert (jobs[4]["estimated_start_time"], jobs[4]["start_time"], jobs[4]["position"]) == (
        "2023-11-14T22:27:20Z",
        None,
        1,
    )
    assert (jobs[3]["gpus_milli"], jobs[3]["device_indices"], jobs[3]["simulated"]) == (500, [0], True)
    assert (jobs[7]["array_id"], jobs[7]["array_index"], jobs[7]["members"]) == (7, 2, 4)


def test_show_has_everything(vgpu: Any, daemon: Any, queue: Any) -> None:
    job = queue.jobs[4]
    job.spec.slice.min_milli, job.spec.slice.mem_max_bytes, job.spec.ram_bytes = 300, 8 << 30, 16 << 30
    job.spec.cpu_milli, job.spec.retries, job.attempt, job.preemptions = 2500, 2, 1, 3
    job.spec.time_limit.CopyFrom(Duration(seconds=5400))
    job.spec.after.extend([1, 2])
    job.spec.after_fail.append(3)
    job.spec.after_end.append(5)
    job.spec.environment["SECRET"] = "x"  # noqa: S105
    job.gpu_seconds_granted, job.gpu_seconds_used, job.cpu_seconds, job.ram_peak_bytes = 120.5, 60.25, 9.5, 1 << 30
    job.log = "/home/a/vgpu-4.log"
    text = "\n".join(job_tables.job_lines(job_views.job_view(job, frozenset()), NOW))
    for words in (
        f"job 4 (train) of {ME} in queue default",
        "state         pending, place 1 in its queue",
        "why           device 0 has 0.25 free",
        ", in 4m",
        "runs          attempt 1 of 3, preempted 3 times",
        "asks for      0.5 GPUs, min 0.3, memory max 8GiB, RAM 16GiB, 2.5 processors",
        "time limit    1h30m",
        "after         1, 2 have completed",
        "after         3 have failed",
        "after         5 have ended",
        "command       train.py",
        "directory     /home/a",
        "log           /home/a/vgpu-4.log",
        "GPU-seconds   120.5 granted, 60.2 used",
        "processors    9.5 s, 1GiB of RAM at peak",
    ):
        assert words in text, text
    assert "SECRET" not in text
    shown = vgpu("job", "show", "4", "-o", "json", host=daemon.host).json["job"]
    assert (shown["time_limit_ns"], shown["environment"]) == (5400 * 10**9, {"SECRET": "x"})
    assert "in queue default" in vgpu("job", "show", "4", host=daemon.host).stdout


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("cancel", "cancelled"),
        ("hold", "held"),
        ("release", "pending"),
        ("requeue", "pending"),
        ("suspend", "suspended"),
        ("resume", "running"),
    ],
)
def test_what_is_done_about_jobs(vgpu: Any, daemon: Any, queue: Any, command: str, state: str) -> None:
    result = vgpu("job", command, "3", "4", host=daemon.host)
    assert result.code == 0
    assert result.stderr.count("\n") == 2 and "job 3" in result.stderr and "job 4" in result.stderr
    assert {queue.state(3), queue.state(4)} == {state}
    for words, code in ((("99",), NOT_FOUND), (("1",), CONFLICT), (("x",), USAGE), (("0",), USAGE), ((), USAGE)):
        result = vgpu("job", command, *words, host=daemon.host)
        assert result.code == code, result
        one_line(result.stderr)
    queue.jobs[3].state = pb.JOB_STATE_RUNNING
    result = vgpu("job", command, "1", "3", host=daemon.host)
    assert (result.code, queue.state(3)) == (CONFLICT, state)
    assert "job 1 has completed" in result.stderr


@pytest.mark.parametrize("job_range", ["7", "7-9"])
def test_cancel_an_array(vgpu: Any, daemon: Any, queue: Any, job_range: str) -> None:
    assert vgpu("job", "cancel", "--array", job_range, host=daemon.host).code == 0
    assert queue.requests[-1] == pb.CancelJobRequest(job_id=7, whole_array=True)


def test_all_jobs_of_an_array_are_named_by_the_first_and_the_last(vgpu: Any, daemon: Any, queue: Any) -> None:
    result = vgpu("job", "hold", "3-4", host=daemon.host)
    assert (result.code, queue.state(3), queue.state(4)) == (0, "held", "held")
    for words in (("job", "show", "3-4"), ("job", "logs", "3-4"), ("explain", "3-4")):
        result = vgpu(*words, host=daemon.host)
        assert result.code == USAGE and "'3-4' are 2 jobs: name one of them" in result.stderr
    for wrong in ("4-3", "3-", "1-10001", "3-4-5"):
        assert vgpu("job", "hold", wrong, host=daemon.host).code == USAGE, wrong
    assert vgpu("submit", "--gpus", "0.5", "--after", "3-5,4,9", "true", host=daemon.host).code == 0
    assert list(queue.requests[-1].spec.after) == [3, 4, 5, 9]


@pytest.mark.parametrize("command", [("show",), ("logs",), ("logs", "-f")])
def test_a_job_that_is_not_there(vgpu: Any, daemon: Any, command: tuple[str, ...]) -> None:
    result = vgpu("job", *command, "99", host=daemon.host)
    assert result.code == NOT_FOUND
    assert "no job 99" in one_line(result.stderr)


# ---- waiting ----


def test_wait_exits_with_the_greatest_code(vgpu: Any, daemon: Any, queue: Any) -> None:
    result = vgpu("job", "wait", "1", "2", "1", host=daemon.host)
    assert result.code == 3
    assert one_line(result.stderr) == "vgpu: job 2 (train) has failed: it ended with exit code 3\n"
    assert vgpu("job", "wait", "1", host=daemon.host).code == 0
    answer = vgpu("job", "wait", "-q", "-o", "json", "2", "1", host=daemon.host)
    assert (answer.code, answer.stderr, [job["job_id"] for job in answer.json["jobs"]]) == (3, "", [2, 1])


@pytest.mark.parametrize(("words", "message"), [(("99",), "no job 99"), (("x",), "'x'"), ((), "JOB")])
def test_what_fails_in_wait_itself_is_125(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("job", "wait", *words, host=daemon.host)
    assert result.code == 125
    assert message in one_line(result.stderr)


def test_wait_without_a_daemon_is_125(vgpu: Any, tmp_path: Path) -> None:
    assert vgpu("job", "wait", "1", host=f"unix://{tmp_path}/vgpud.sock").code == 125


def test_who_may_not_watch_asks(vgpu: Any, daemon: Any, queue: Any) -> None:
    """A user's twentieth `vgpu submit --wait` waits as well as the first."""
    queue.has_too_many_watchers = True

    def end() -> None:
        time.sleep(0.3)
        queue.end(3, 5)

    thread = threading.Thread(target=end)
    thread.start()
    result = vgpu("job", "wait", "3", "1", host=daemon.host)
    thread.join()
    assert result.code == 5, result
    assert vgpu("job", "wait", "99", host=daemon.host).code == 125


def test_a_restart_of_the_daemon_is_waited_out(vgpu: Any, daemon: Any, queue: Any) -> None:
    """The daemon goes, the job ends meanwhile, the daemon comes back."""

    def restart() -> None:
        time.sleep(0.3)
        daemon.stop()
        queue.end(3, 5)
        time.sleep(0.3)
        daemon.__enter__()

    thread = threading.Thread(target=restart)
    thread.start()
    result = vgpu("job", "wait", "3", host=daemon.host)
    thread.join()
    assert result.code == 5, result
    assert "jobs continue" in result.stderr


# ---- output ----


def test_logs_shows_a_file_and_its_last_lines(vgpu: Any, daemon: Any, queue: Any, tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("".join(f"line {i}\n" for i in range(1, 6)))
    queue.jobs[1].log = str(log)
    assert vgpu("job", "logs", "1", host=daemon.host).stdout == log.read_text()
    assert vgpu("job", "logs", "-n", "2", "1", host=daemon.host).stdout == "line 4\nline 5\n"
    assert vgpu("job", "logs", "-n", "0", "1", host=daemon.host).stdout == ""
    assert vgpu("job", "logs", "-f", "1", host=daemon.host).stdout == log.read_text()


def test_logs_of_a_member(vgpu: Any, daemon: Any, queue: Any, tmp_path: Path) -> None:
    queue.jobs[7].log = str(tmp_path / "out.log")
    (tmp_path / "out.log.3").write_text("third\n")
    assert vgpu("job", "logs", "--member", "3", "7", host=daemon.host).stdout == "third\n"
    result = vgpu("job", "logs", "--member", "4", "7", host=daemon.host)
    assert result.code == NOT_FOUND
    assert "members are 0 to 3" in one_line(result.stderr)


def test_logs_of_a_job_without_output_says_why(vgpu: Any, daemon: Any, queue: Any, tmp_path: Path) -> None:
    queue.jobs[4].log = queue.jobs[5].log = str(tmp_path / "not-there")
    result = vgpu("job", "logs", "4", host=daemon.host)
    assert (result.code, result.stdout) == (0, "")
    assert "no output yet: it is pending: device 0 has" in one_line(result.stderr)
    assert "job 5 has no output yet: it is held: release it" in vgpu("job", "logs", "5", host=daemon.host).stderr


def test_logs_that_are_no_file_or_not_ours(vgpu: Any, daemon: Any, queue: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, code in (("/dev/null", OTHER), (str(tmp_path / "fifo"), OTHER), (str(tmp_path), OTHER)):
        queue.jobs[1].log = path
        result = vgpu("job", "logs", "1", host=daemon.host)
        assert result.code == code
        assert path in one_line(result.stderr)


def test_logs_f_follows_until_the_end_over_a_new_file(vgpu: Any, daemon: Any, queue: Any, tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    queue.jobs[4].log = str(log)

    def run() -> None:
        time.sleep(0.2)
        log.write_text("first\n")
        time.sleep(0.4)
        with log.open("a") as file:
            file.write("second\n")
        time.sleep(0.3)
        fresh = tmp_path / "fresh"
        fresh.write_text("again\n")
        fresh.rename(log)
        time.sleep(0.3)
        log.write_text("cut\n")  # begun again and shorter
        queue.end(4)

    thread = threading.Thread(target=run)
    thread.start()
    result = vgpu("job", "logs", "-f", "4", host=daemon.host)
    thread.join()
    assert result.code == 0
    assert result.stdout == "first\nsecond\nagain\ncut\n"
    assert "no output yet" in one_line(result.stderr)


def test_ctrl_c_is_the_users_again_after_waiting(vgpu: Any, daemon: Any, queue: Any) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert vgpu("job", "wait", "1", host=daemon.host).code == 0
    assert signal.getsignal(signal.SIGINT) is before


# ---- top ----


def test_top_prints_views_where_there_is_no_terminal(vgpu: Any, daemon: Any, queue: Any) -> None:
    queue.queues["default"].limit_milli = 4000
    queue.queues["default"].used_milli = 1000
    result = vgpu("job", "top", "-n", "1", host=daemon.host)
    assert result.code == 0
    first, used, *rest = result.stdout.splitlines()
    assert first.split() == ["QUEUE", "USED", "OF", "FULL", "RUNNING", "PENDING", "POLICY"]
    assert used.split() == ["default", "1", "4", "#####", "0", "0", "fifo"]
    assert [line.split()[0] for line in rest] == ["JOB", "3", "6", "7", "4", "5"]  # running ones first, by place
    answer = vgpu("job", "top", "-n", "1", "-o", "json", host=daemon.host).json
    assert (answer["queues"][0]["used_milli"], len(answer["jobs"])) == (1000, 5)


def test_the_screen_of_top_says_how_many_more_there_are() -> None:
    from rich.console import Console

    job = pb.Job(node=NODE, spec=pb.JobSpec(name="a", slice=pb.SliceSpec(gpus_milli=500)), state=pb.JOB_STATE_PENDING)
    job.submit_time.CopyFrom(at(0))
    views = [{**job_views.job_view(job, frozenset()), "job_id": i} for i in range(100)]
    out = Console(width=100, height=20, no_color=True, force_terminal=True)
    with out.capture() as capture:
        out.print(top.frame(out, {"queues": [job_views.queue_view(pb.Queue(name="q"))], "jobs": views}, "08:00:00"))
    lines = capture.get().splitlines()
    assert len(lines) < 20
    assert "08:00:00  100 pending" in lines[0]
    assert "and 87 more" in lines[-1]


def test_completion_of_jobs_and_queues(daemon: Any, queue: Any) -> None:
    import click

    from vgpud.cli.common.completions import complete_job, complete_queue
    from vgpud.cli.common.options import Settings

    queue.add(12, "running")
    context = click.Context(click.Command("x"), obj=Settings(host=daemon.host))
    param = click.Option(["--x"])
    assert [item.value for item in complete_job(context, param, "1")] == ["1", "12"]
    assert [item.value for item in complete_job(context, param, "4,1")] == ["4,1", "4,12"]
    assert complete_queue(context, param, "d") == ["default"]
    daemon.stop()
    assert complete_job(context, param, "1") == complete_queue(context, param, "d") == []


def test_a_log_that_another_process_writes_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = wait.Log(path, None)
    assert list(log.read()) == [] and not log.is_open
    path.write_bytes(b"a\n")
    assert b"".join(log.read()) == b"a\n"
    with path.open("ab") as file:
        file.write(b"b")
    assert b"".join(log.read()) == b"b"
    path.unlink()
    assert list(log.read()) == []
    wait_until(lambda: log.is_open)


def test_jobs_are_separated_by_blanks(vgpu: Any, daemon: Any, queue: Any) -> None:
    for words in (("show", "1,2"), ("cancel", "1,2", "3")):
        result = vgpu("job", *words, host=daemon.host)
        assert result.code == 2 and "'1,2' is not a job: write numbers with blanks between them" in one_line(
            result.stderr
        )
