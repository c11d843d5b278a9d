"""The file of queues is reread when it changes; a bad one changes nothing and is shown."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.system import System
from vgpud.cluster import service
from vgpud.cluster.shell.slurm import Slurm
from vgpud.cluster.shell.watched import WatchedFile
from vgpud.core.jobs import events
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.simulate import quotas, replay


@pytest.fixture
def system(quick_system: System) -> System:
    return quick_system


class Queues:
    """A system whose controller was started with a file of queues."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.file = system.folder / "queues.json"
        self.write({"name": "default", "min_run_ns": 0})
        self.options = replace(system.options, queues=quotas.read(self.file), queues_file=self.file)
        self.service = self.start_service()

    def start_service(self) -> service.Service:
        return service.Service(self.options, Slurm("gpu"))

    def write(self, *queues: dict[str, object]) -> None:
        """As an editor does: another file with the same name."""
        made = self.file.with_suffix(".new")
        made.write_text(json.dumps({"queues": queues}))
        made.replace(self.file)

    def with_team_at_work(self) -> str:
        """A queue more, with a job that runs."""
        self.write({"name": "default", "min_run_ns": 0}, {"name": "team"})
        job = self.system.submit("gpu:1", account="team")
        self.service.look()
        self.service.look()
        return job

    def say(self, *words: str) -> str:
        return self.system.say(*words, "--run-dir", str(self.options.run))

    def show_cluster(self) -> dict[str, object]:
        found = json.loads(self.say("cluster", "ls", "-o", "json"))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def queues(system: System) -> Queues:
    return Queues(system)


def test_a_limit_is_raised(queues: Queues) -> None:
    queues.write({"name": "default", "min_run_ns": 0, "limit_milli": 1000})
    first, second = queues.system.submit("gpu:1"), queues.system.submit("gpu:1")
    queues.service.look()
    queues.service.look()
    states = [queues.system.slurm().jobs[key].state for key in (first, second)]
    assert states == ["RUNNING", "PENDING"]
    queues.write({"name": "default", "min_run_ns": 0, "limit_milli": 2000})
    queues.service.look()
    assert queues.system.slurm().jobs[second].state == "RUNNING"
    (shown,) = json.loads(queues.say("queue", "ls", "--cluster", "-o", "json"))["queues"]
    assert (shown["name"], shown["limit_milli"], shown["used_milli"]) == ("default", 2000, 2000)
    queues.service.close()
    recorded = replay.read(queues.system.folder / "record")
    changes = [event for step in recorded.steps for event in step.events if isinstance(event, events.QueuesChanged)]
    assert len(changes) == 2 and list(replay.same_commands(recorded)) == []


def test_a_job_that_was_too_large_is_queued_when_the_limit_is_raised(queues: Queues) -> None:
    queues.write({"name": "default", "min_run_ns": 0, "limit_milli": 1000})
    queues.service.look()
    job = queues.system.submit("gpu:2")
    queues.service.look()
    assert queues.service.controller.refusal_reasons.keys() == {job}
    queues.write({"name": "default", "min_run_ns": 0})
    queues.service.look()
    assert queues.system.slurm().jobs[job].state == "RUNNING"
    queues.service.close()


def test_waiting_jobs_move_to_the_new_queue_of_their_account(queues: Queues) -> None:
    runs, waits = queues.system.submit("gpu:2"), queues.system.submit("gpu:2", account="team")
    queues.service.look()
    queues.write({"name": "default", "min_run_ns": 0}, {"name": "team", "guarantee_milli": 3000, "min_run_ns": 0})
    for _ in range(4):
        queues.service.look()
    jobs = queues.system.slurm().jobs
    assert (jobs[runs].state, jobs[waits].state) == ("PENDING", "RUNNING"), "its guarantee makes space for it"
    queues.service.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"queues": []}', "has no queues"),
        ('{"queues": [{"name": "default", "policy": "fastest"}]}', "queue default: "),
        ('{"queues": [{"name": "default", "placement": "nowhere"}]}', "queue default: "),
        ('{"queues": [{"name": "default", "weight": 0}]}', "weight 0"),
        ('{"queues": [{"name": "default", "guarantee_milli": 99000}]}', "there are 3: lower one"),
        (None, "cannot read"),
    ],
)
def test_a_bad_file_changes_nothing(
    queues: Queues, caplog: pytest.LogCaptureFixture, text: str | None, words: str
) -> None:
    caplog.set_level(logging.WARNING)
    queues.service.look()
    if text is None:
        queues.file.unlink()
    else:
        queues.file.write_text(text)
    job = queues.system.submit("gpu:1")
    for _ in range(3):
        queues.service.look()
    said = [record.message for record in caplog.records if words in record.message]
    assert len(said) == 1 and said[0].startswith("queues stay as they were: "), "once, not with every look"
    assert queues.system.slurm().jobs[job].state == "RUNNING"
    fault = queues.show_cluster()["queues_fault"]
    assert words in str(fault)
    assert words in queues.say("cluster", "ls") and words in queues.say("queue", "ls", "--cluster")
    queues.write({"name": "default", "min_run_ns": 0})
    queues.service.look()
    assert queues.show_cluster()["queues_fault"] is None
    queues.service.close()


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_file_does_not_stop_the_controller(queues: Queues, kind: str) -> None:
    """No process ever writes to the pipe."""
    queues.service.look()
    queues.file.unlink()
    if kind == "pipe":
        os.mkfifo(queues.file)
    elif kind == "directory":
        queues.file.mkdir()
    else:
        queues.file.symlink_to("/dev/zero")
    queues.service.look()
    assert str(queues.file) in str(queues.show_cluster()["queues_fault"])
    queues.service.close()


def test_a_queue_in_use_goes_when_its_jobs_have_ended(queues: Queues) -> None:
    job = queues.with_team_at_work()
    queues.write({"name": "default", "min_run_ns": 0})
    queues.service.look()
    assert "queue team is in use" in str(queues.show_cluster()["queues_fault"])
    assert [queue.name for queue in queues.service.queues] == ["default", "team"]
    queues.system.end(job)
    for _ in range(2):
        queues.service.look()
    assert [queue.name for queue in queues.service.queues] == ["default"]
    assert queues.show_cluster()["queues_fault"] is None
    queues.service.close()


def test_the_next_controller_has_no_such_queue_any_more(queues: Queues) -> None:
    """Jobs of a former controller stay in a queue without guarantee and limit; new ones of that account do not."""
    runs = queues.with_team_at_work()
    queues.service.close()
    queues.write({"name": "default", "min_run_ns": 0})
    two = queues.start_service()
    new = queues.system.submit("gpu:1", account="team")
    two.look()
    assert {job.spec.name: job.spec.queue for job in two.controller.machine.jobs.values()} == {
        runs: "team",
        new: "default",
    }
    queues.write({"name": "default", "min_run_ns": 0, "weight": 2})
    two.look()
    assert [queue.weight for queue in two.queues] == [2] and queues.show_cluster()["queues_fault"] is None
    two.close()
    recorded = replay.read(queues.system.folder / "record")
    assert recorded.jobs and list(replay.same_commands(recorded)) == []


def test_a_queue_of_a_former_controller_goes_when_its_jobs_have_ended(queues: Queues) -> None:
    runs = queues.with_team_at_work()
    queues.service.close()
    queues.write({"name": "default", "min_run_ns": 0})
    two = queues.start_service()
    two.look()
    names = [queue.name for queue in two.controller.all_queues(two.queues)]
    assert names == ["default", "team"]
    queues.system.end(runs)
    two.look()
    queues.write({"name": "default", "min_run_ns": 0, "weight": 2})
    two.look()
    two.close()
    recorded = replay.read(queues.system.folder / "record")
    (changed,) = [event for step in recorded.steps for event in step.events if isinstance(event, events.QueuesChanged)]
    assert [queue.name for queue in changed.queues] == ["default"]
    assert list(replay.same_commands(recorded)) == []


def test_what_is_shown_is_a_file_of_queues_again(queues: Queues) -> None:
    queues.write(
        {"name": "default", "min_run_ns": 0, "policy": "srtf"}, {"name": "team", "limit_milli": 2000, "weight": 3}
    )
    queues.service.look()
    shown = queues.system.folder / "shown.json"
    shown.write_text(queues.say("cluster", "queues", "-o", "json"))
    assert quotas.read(shown) == queues.service.queues
    queues.service.close()


def test_without_a_file(system: System) -> None:
    one = system.service()
    one.look()
    one.look()
    assert one.queues == (QueueSpec("default", min_run_ns=0),)
    one.close()
    done = system.run("queue", "set", "default", "--limit", "2", "--cluster", "--run-dir", str(system.options.run))
    assert done.exit_code == 2 and "with --queues FILE" in done.output


def test_a_queue_is_not_set_by_a_command(queues: Queues) -> None:
    queues.service.look()
    for words in (("set", "team", "--limit", "2"), ("rm", "default")):
        done = queues.system.run("queue", *words, "--cluster", "--run-dir", str(queues.options.run))
        assert done.exit_code == 2 and f"{queues.file}: change that file" in " ".join(done.output.split())
    queues.service.close()


def test_the_command_names_the_file(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is named relative to where the controller is started."""
    queues.service.close()
    given: list[service.Options] = []
    monkeypatch.setattr(service, "serve", given.append)
    monkeypatch.chdir(queues.file.parent)
    queues.system.say("cluster", "run", "--partition", "gpu", "--queues", queues.file.name, "--start-wait", "5s")
    (options,) = given
    assert (options.queues_file, options.queues, options.settings.start_wait_ns) == (
        queues.file,
        queues.options.queues,
        5 * SECOND_NS,
    )


def test_a_pipe_is_read_once(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """--queues <(command): it is not there any more when the controller looks."""
    queues.service.close()
    given: list[service.Options] = []
    monkeypatch.setattr(service, "serve", given.append)
    ends = os.pipe()
    os.write(ends[1], queues.file.read_bytes())
    os.close(ends[1])
    queues.system.say("cluster", "run", "--partition", "gpu", "--queues", f"/dev/fd/{ends[0]}")
    os.close(ends[0])
    assert (given[0].queues, given[0].queues_file) == (queues.options.queues, None)


def test_when_a_file_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    watched = WatchedFile(path)
    assert watched.has_changed() and not watched.has_changed(), "that it is missing is known after the first look"
    path.write_text("1")
    assert watched.has_changed() and not watched.has_changed()
    other = tmp_path / "other"
    other.write_text("2")
    other.replace(path)
    assert watched.has_changed() and not watched.has_changed()
    before = path.stat()
    path.write_text("3")
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system is coarse
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watched.has_changed() and not watched.has_changed(), "whatever its time of modification says"
    path.unlink()
    assert watched.has_changed() and not watched.has_changed()
