"""`vgpu tune` with the fake queue: programs are functions that write what a run prints."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

PATTERN = r"samples (?P<samples>[\d.]+) seconds (?P<seconds>[\d.]+)"
BY_PATTERN = ("--rate-pattern", PATTERN, "--gpus", "0.25,1")
TRAIN = ("--", "python", "train.py", "--batch", "{batch}")

#: milli-GPU, batch -> samples a second; a text: the output of a run that fails; None: it prints nothing and ends
Outcome = float | str | None


def batch_of(spec: pb.JobSpec) -> int:
    return int(spec.command[-1]) if spec.command[-1].isdigit() else 0


class Programs:
    """What the fake daemon's jobs do."""

    def __init__(self, daemon: Any) -> None:
        self._daemon = daemon
        self.outcome: Callable[[int, int], Outcome] = lambda milli, batch: milli * max(1, batch) / 1000
        self.state = "failed"  # of those that fail
        self.specs: list[pb.JobSpec] = []
        self._seen: set[int] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        daemon.queue.first_state, daemon.queue.first_reason = "running", ""
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.003):
            for job_id in set(self._daemon.queue.jobs) - self._seen:
                self._seen.add(job_id)
                self._do(job_id)

    def _do(self, job_id: int) -> None:
        job = self._daemon.queue.jobs[job_id]
        self.specs.append(job.spec)
        found = self.outcome(job.spec.slice.gpus_milli, batch_of(job.spec))
        if isinstance(found, float):
            lines = [f"samples {found * second} seconds {second}" for second in range(100)]
            Path(job.log).write_text("\n".join(lines) + "\n")
            return
        Path(job.log).write_text(f"{found}\n" if found else "")
        self._daemon.queue.end(job_id, 1 if found else 0, self.state if found else "completed")

    def states(self) -> set[str]:
        return {self._daemon.queue.state(job_id) for job_id in self._daemon.queue.jobs}


@pytest.fixture
def programs(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("vgpud.cli.tune.race.POLL_S", 0.005)
    made = Programs(daemon)
    yield made
    made.stop()


@pytest.fixture
def tune(vgpu: Any, daemon: Any, programs: Programs) -> Any:
    return lambda *words: vgpu("tune", *words, host=daemon.host)


def list_files(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "state/vgpud/tune").glob("*.json")]


def test_the_best_per_gpu_is_found_shown_and_kept(tune: Any, programs: Programs, tmp_path: Path) -> None:
    rates = {(250, 64): 40.0, (250, 32): 30.0, (1000, 64): 100.0, (1000, 32): 90.0}
    programs.outcome = lambda milli, batch: rates[milli, batch]
    done = tune("-o", "json", *BY_PATTERN, "--batch", "32,64", *TRAIN)
    assert done.code == 0, done
    shown = done.json["tune"]
    assert (shown["name"], shown["unit"], shown["gpu"]) == ("train", "samples", "SIMULATED H200")
    assert {(one["gpus_milli"], one["values"]["batch"]): round(one["rate"]) for one in shown["candidates"]} == rates
    (best,) = [one for one in shown["candidates"] if one["choice"]]
    assert (best["gpus_milli"], best["values"], round(best["rate_per_gpu"])) == (250, {"batch": 64}, 160)
    assert [one["gpus_milli"] for one in shown["candidates"] if one["frontier"]] == [250, 1000]
    assert list_files(tmp_path) == ["train.json"] and programs.states() == {"cancelled"}
    table = tune("show", "train")
    assert "160" in table.stdout and "best: --gpus 0.25, batch 64" in table.stderr
    assert tune("ls", "-o", "name").stdout == "train\n"
    assert tune("rm", "train").code == 0 and list_files(tmp_path) == []


def test_runs_are_ordinary_jobs_with_a_time_limit(tune: Any, programs: Programs) -> None:
    options = ("--queue", "default", "--class", "latency", "--mem", "1G", "--run-time", "10s", "--run-limit", "2m")
    assert (
        tune(
            "--rate-pattern", PATTERN, "--gpus", "0.5", *options, "--env", "SIZE=a{batch}", "--batch", "8", *TRAIN
        ).code
        == 0
    )
    (spec,) = programs.specs
    assert list(spec.command) == ["python", "train.py", "--batch", "8"]
    assert (spec.environment["SIZE"], spec.environment["PYTHONUNBUFFERED"]) == ("a8", "1")
    assert (spec.slice.gpus_milli, spec.slice.service_class) == (500, pb.SERVICE_CLASS_LATENCY)
    assert (spec.slice.mem_max_bytes, spec.time_limit.seconds, spec.not_preemptible) == (1 << 30, 120, True)
    assert (spec.queue, spec.name) == ("default", "tune-train")


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_run_at_once_than_asked(tune: Any, programs: Programs, daemon: Any, at_once: int) -> None:
    most: list[int] = []

    def outcome(milli: int, batch: int) -> Outcome:
        until_s = time.monotonic() + 0.5
        while time.monotonic() < until_s:
            most.append(sum(job.state not in calls.ENDED for job in list(daemon.queue.jobs.values())))
            if most[-1] >= at_once:
                break
        return float(batch)

    programs.outcome = outcome
    assert tune(*BY_PATTERN, "--batch", "8..128", "--at-once", str(at_once), *TRAIN).code == 0
    assert max(most) == at_once


def test_out_of_memory_rules_out_and_is_no_error(tune: Any, programs: Programs) -> None:
    programs.outcome = lambda milli, batch: (
        "torch.OutOfMemoryError: CUDA out of memory" if batch > milli / 4 else float(batch)
    )
    done = tune("-o", "json", *BY_PATTERN, "--batch", "32..256", *TRAIN)
    assert done.code == 0, done
    out = {
        (one["gpus_milli"], one["values"]["batch"]): one["why_out"]
        for one in done.json["tune"]["candidates"]
        if one["why_out"]
    }
    assert set(out) == {(250, 64), (250, 128), (250, 256), (1000, 256)} - ({(1000, 256)} if 256 <= 250 else set())
    assert all("out of memory" in why for why in out.values())


def test_all_out_of_memory_is_one_line(tune: Any, programs: Programs, tmp_path: Path) -> None:
    programs.outcome = lambda milli, batch: "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
    done = tune(*BY_PATTERN, "--batch", "32,64", *TRAIN)
    assert done.code == 6 and list_files(tmp_path) == []
    assert "every candidate is out of memory: give a smaller --batch" in done.stderr.splitlines()[-1]


def test_a_pattern_that_takes_a_part_of_a_number_ends_the_tuning(tune: Any, programs: Programs) -> None:
    programs.outcome = lambda milli, batch: "3,214.0 samples/s"
    done = tune("--rate-pattern", "([0-9.]+) samples/s", "--gpus", "0.25,1", "--", "train")
    assert done.code == 2 and "takes only '214.0' of a number with separators" in done.stderr.splitlines()[-1]
    assert len(programs.specs) == 1


def test_a_program_that_prints_no_rate_is_one_line(tune: Any, programs: Programs) -> None:
    programs.outcome = lambda milli, batch: None
    done = tune(*BY_PATTERN, "--batch", "32,64", *TRAIN)
    assert done.code == 1
    assert "all 4 candidates failed, the first: two lines of its output have to match" in done.stderr
    done = tune("--gpus", "1", "--", "true")
    last_line = done.stderr.splitlines()[-1]
    assert done.code == 1 and "the only candidate failed: " in last_line and "vgpud.client.report" in last_line


def test_a_program_that_fails_says_how(tune: Any, programs: Programs) -> None:
    programs.outcome = lambda milli, batch: "ModuleNotFoundError: No module named 'x'"
    done = tune("--gpus", "1", "--", "python", "train.py")
    assert done.code == 1
    assert 'ended with 1: "ModuleNotFoundError' in done.stderr.splitlines()[-1]


def test_a_cancelled_job_is_out(tune: Any, programs: Programs) -> None:
    programs.state = "cancelled"
    programs.outcome = lambda milli, batch: "x" if milli == 250 else 5.0
    done = tune("-o", "json", "--rate-pattern", PATTERN, "--gpus", "0.25,1", "--", "train")
    assert [one["why_out"] for one in done.json["tune"]["candidates"]] == ["its job 1 was cancelled", None]


def test_a_size_that_the_daemon_refuses_is_out(tune: Any, programs: Programs) -> None:
    done = tune("-o", "json", "--rate-pattern", PATTERN, "--gpus", "1,9", "--", "train")
    assert done.code == 0 and "more than the cluster has" in done.json["tune"]["candidates"][1]["why_out"]


@pytest.mark.parametrize(("deadline", "gpus_milli"), [("1000s", 250), ("15s", 1000)])
def test_the_cheapest_that_meets_a_deadline(tune: Any, programs: Programs, deadline: str, gpus_milli: int) -> None:
    programs.outcome = lambda milli, batch: {250: 40.0, 1000: 100.0}[milli]
    done = tune("-o", "json", *BY_PATTERN, "--samples", "1000", "--deadline", deadline, "--", "train")
    (best,) = [one for one in done.json["tune"]["candidates"] if one["choice"]]
    assert best["gpus_milli"] == gpus_milli and best["work_s"] == pytest.approx(1000 / best["rate"])


def test_a_deadline_that_none_meets(tune: Any, programs: Programs, tmp_path: Path, vgpu: Any, daemon: Any) -> None:
    programs.outcome = lambda milli, batch: {250: 40.0, 1000: 100.0}[milli]
    done = tune(*BY_PATTERN, "--samples", "1000", "--deadline", "5s", "--", "train")
    assert done.code == 1
    line = done.stderr.splitlines()[-1]
    assert "no candidate meets the deadline: the fastest, --gpus 1, takes 10s instead of 5s; all are in " in line
    assert list_files(tmp_path) == ["train.json"]
    assert "no candidate meets it" in tune("show", "train").stderr
    assert vgpu("submit", "--gpus", "auto", "--", "train", host=daemon.host).code == 4


def test_a_daemon_that_restarts_in_between(
    tune: Any, programs: Programs, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vgpud.cli.common.client import Client
    from vgpud.errors import CliError, ExitCode

    send, dice = Client.send, random.Random(1)

    def fail(self: Client, call: Any) -> Any:
        if call.method in ("GetJob", "SubmitJob", "CancelJob") and dice.random() < 0.6:
            raise CliError("the daemon does not answer", ExitCode.UNREACHABLE)
        return send(self, call)

    monkeypatch.setattr(Client, "send", fail)
    done = tune(*BY_PATTERN, "--", "train")
    assert done.code == 0 and done.stderr.count("the daemon does not answer; the run continues") >= 1
    assert len(daemon.queue.jobs) == 2  # none was submitted twice
    assert programs.states() == {"cancelled"}


def test_ctrl_c_cancels_the_runs(tune: Any, programs: Programs, daemon: Any, tmp_path: Path) -> None:
    def outcome(milli: int, batch: int) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return float(0)  # no progress

    programs.outcome = outcome
    handler = signal.getsignal(signal.SIGINT)
    done = tune(*BY_PATTERN, "--", "train")
    assert done.code == 130 and "its jobs were cancelled, and nothing is kept" in done.stderr
    assert programs.states() == {"cancelled"} and list_files(tmp_path) == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_budget_ends_it_with_what_is_known(tune: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(
        "vgpud.cli.tune.race.time", type("Clock", (), {"monotonic": lambda: now[0], "sleep": time.sleep})
    )

    def outcome(milli: int, batch: int) -> Outcome:
        now[0] = 100.0 if milli == 1000 else 0.0
        return 0.0 if milli == 1000 else 5.0

    programs.outcome = outcome
    done = tune("-o", "json", *BY_PATTERN, "--budget", "50s", "--", "train")
    assert done.code == 0, done
    assert [one["why_out"] for one in done.json["tune"]["candidates"]] == [None, "not measured: the time was over"]


def test_reports_of_the_program_are_its_rate(tune: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vgpud.client.report writes them, of two processes."""

    def outcome(milli: int, batch: int) -> Outcome:
        path = Path(programs.specs[-1].environment["VGPU_PROGRESS_FILE"])
        path.write_text("".join(f"{pid} {second * 5} {second}\n" for second in range(100) for pid in (7, 8)) + "junk\n")
        return 1.0

    programs.outcome = outcome
    done = tune("-o", "json", "--gpus", "1", "--", "train")
    assert done.code == 0, done
    assert done.json["tune"]["candidates"][0]["rate"] == pytest.approx(10)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "specify a command"),
        (("--", "train", "{bacth}"), "{bacth} is not a placeholder, did you mean {batch}? Write {{bacth}} for"),
        (("--", "train", "{x}"), "{x} is not a placeholder: there are {batch} and {workers}."),
        (("--", "train", "{batch}"), "{batch} needs values: for example --batch 32..256"),
        (("--workers", "2", "--", "train"), "--workers is never used: write {workers} where COMMAND takes it"),
        (("--batch", "0", "--", "train", "{batch}"), "0 is not in the range"),
        (("--batch", "8..4", "--", "train", "{batch}"), "'8..4' is not a range"),
        (("--gpus", "x", "--", "train"), "'x'"),
        (("--gpus", "0.001..1", "--class", "fast", "--", "train"), "'fast' is not a class: choose from batch, latency"),
        (("--rate-pattern", "x", "--", "train"), "has to have one group"),
        (("--deadline", "1h", "--", "train"), "--deadline needs the whole work"),
        (("--steps", "10", "--", "train"), "--steps counts steps of one {batch} each"),
        (("--steps", "1", "--samples", "1", "--", "train"), "give one of them"),
        (("--run-time", "5m", "--run-limit", "1m", "--", "train"), "--run-limit has to be longer than --run-time"),
        (("--name", "a/b", "--", "train"), "'a/b' is not a name"),
        (("--mem", "1G", "--predict-run", "--", "train"), "--mem sets the memory and --predict-run finds it"),
        (("--batch", ",".join(map(str, range(1, 99))), "--", "train", "{batch}"), "294 candidates are too many"),
    ],
)
def test_bad_input_is_one_line(tune: Any, programs: Programs, words: tuple[str, ...], text: str) -> None:
    done = tune(*words)
    assert done.code == 2 and text in done.stderr and done.stderr.count("\n") == 1, done
    assert programs.specs == []


@pytest.mark.parametrize("text", ["", "{", json.dumps({"version": 1}), json.dumps({"version": 99})])
def test_a_file_that_is_no_record_is_one_line(tune: Any, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "state/vgpud/tune"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "bad.json").write_text(text)
    done = tune("show", "bad")
    assert done.code == 1 and "`vgpu tune rm bad` removes it" in done.stderr and done.stderr.count("\n") == 1
    listed = tune("ls")
    assert listed.code == 0 and listed.stderr.count("cannot read") == 1
    assert tune("rm", "bad").code == 0 and tune("show", "bad").code == 4


def test_one_name_is_tuned_by_one_command_at_a_time(tune: Any, programs: Programs) -> None:
    from vgpud.cli.common.kept_tunes import open_log_folder

    with open_log_folder("train") as folder:
        (folder / "1.log").write_text("x")
        done = tune("--gpus", "1", "--", "train")
        assert done.code == 8 and "tuning train runs already" in done.stderr and (folder / "1.log").exists()
    assert programs.specs == []


def test_the_memory_of_a_dry_run_is_what_a_run_gets(
    tune: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By batch: one does not fit on the device, one fails, one fits."""
    asked: list[tuple[list[str], float]] = []

    class Result:
        def __init__(self, size_bytes: int) -> None:
            self._size_bytes = size_bytes

        def slice_bytes(self) -> int:
            return self._size_bytes

    def run_dry(command: list[str], *_: Any, limit_s: float) -> Any:
        asked.append((command, limit_s))
        sizes = {"8": [3 << 30], "16": [200 << 30], "32": []}[command[-1]]
        return None, tuple(map(Result, sizes)), 1 if not sizes else 0

    monkeypatch.setattr("vgpud.cli.predict.predict_run.run_dry", run_dry)
    done = tune("-o", "json", *BY_PATTERN, "--predict-run", "--run-time", "7s", "--batch", "8..32", *TRAIN)
    assert done.code == 0, done
    assert {batch_of(spec) for spec in programs.specs} == {8}
    assert {spec.slice.mem_max_bytes for spec in programs.specs} == {3 << 30}
    assert len(asked) == 3 and {limit_s for _, limit_s in asked} == {7}
    out = {one["values"]["batch"]: one["why_out"] for one in done.json["tune"]["candidates"]}
    assert "out of memory: 200GiB by its dry run" in out[16] and "used no device" in out[32]


def test_ctrl_c_in_a_dry_run_ends_the_tuning(
    tune: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def run_dry(command: list[str], *_: Any, limit_s: float) -> Any:
        asked.append(command)
        return None, (), 130

    monkeypatch.setattr("vgpud.cli.predict.predict_run.run_dry", run_dry)
    assert tune("--predict-run", "--batch", "8,16", *TRAIN).code == 130
    assert len(asked) == 1 and programs.specs == [] and list_files(tmp_path) == []
