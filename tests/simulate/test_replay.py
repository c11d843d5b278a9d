"""A recording replayed: the machine says the same, the simulation decides the same; what differs is named."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from vgpud.core.jobs import events
from vgpud.core.jobs.model import SECOND_NS, Ask, Elastic, How, JobSpec, QueueSpec
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.record import encode, to_plain
from vgpud.simulate import clusters, replay
from vgpud.simulate.trace import TraceError

BEGIN_NS = 1_700_000_000 * SECOND_NS


@dataclass
class Live:
    """A queue as the daemon drives it, with times that are never round, that writes down what is said."""

    path: Path
    policy: str = "priority(preempt)"
    seed: int = 1
    elastic: bool = False
    lines: list[object] = field(default_factory=list)
    now_ns: int = BEGIN_NS
    coming: list[tuple[int, int, events.Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        eager = {"elastic_wait_ns": 2 * SECOND_NS, "elastic_idle_ns": 3 * SECOND_NS}
        queues = (
            QueueSpec("default", policy=self.policy, min_run_ns=0, **eager),
            QueueSpec("team", limit_milli=1000, **eager),
        )
        nodes = clusters.parse("1x2")
        self.lines.append({"queues": encode(queues), "nodes": encode(nodes)})
        self.machine = Machine(queues, Cluster(nodes), registry.make)
        self.serial = 0

    def schedule(self, event: events.Event, most_s: float) -> None:
        self.serial += 1
        self.coming.append((self.now_ns + self.draw.randrange(1, round(most_s * SECOND_NS)), self.serial, event))

    def tell(self, sent_events: Iterable[events.Event]) -> None:
        said = self.machine.steps(list(sent_events), self.now_ns)
        ended = [event.job_id for event in sent_events if isinstance(event, events.JobEnded)]
        self.coming = [
            one for one in self.coming if not (isinstance(one[2], events.Resized) and one[2].job_id in ended)
        ]
        *first, last = sent_events
        self.lines += [{"at_ns": self.now_ns, "event": to_plain(event)} for event in first]
        line = {"at_ns": self.now_ns, "event": to_plain(last), "commands": [to_plain(command) for command in said]}
        self.lines.append(line)
        for command in said:
            match command:
                case events.ResizeJob(job_id, attempt, placement):
                    now = self.machine.jobs[job_id].placement
                    got = self.draw.choice([placement, placement, placement, now, placement[: len(now)]])
                    self.schedule(
                        events.Resized(job_id, attempt, got, "" if got == placement else "it was not possible"), 2
                    )
                case events.StartJob(job_id, attempt):
                    self.schedule(events.JobEnded(job_id, attempt, self.draw.choice([0, 0, 0, 1])), 30)
                case events.StopJob(job_id, how):
                    self.coming = [one for one in self.coming if getattr(one[2], "job_id", 0) != job_id]
                    attempt = self.machine.jobs[job_id].attempt
                    answer = self.draw.choice([how, how, how, How.REQUEUE, None]) if how else None
                    code = 143 if how is None else self.draw.randrange(2)  # it may end by itself before it is stopped
                    suspended = events.JobSuspended(job_id, answer) if answer else None
                    self.schedule(suspended or events.JobEnded(job_id, attempt, code), 2)
                case events.Wake(at_ns):
                    self.coming = [one for one in self.coming if not isinstance(one[2], events.Woken)]
                    self.serial += 1
                    late_ns = self.draw.randrange(1, 3_000_000)
                    self.coming.append((max(at_ns, self.now_ns) + late_ns, self.serial, events.Woken()))

    def run(self) -> replay.Recording:
        for job_id in range(1, 21):
            self.now_ns += self.draw.randrange(1, 4 * SECOND_NS)
            self.catch_up()
            milli = self.draw.choice([250, 500, 1000, 1500])
            spec = JobSpec(
                Ask(Spec(milli)),
                self.draw.choice([1, 1, 2]) if milli <= 1000 else 1,
                queue=self.draw.choice(["default", "default", "team"]) if milli <= 500 else "default",
                priority=self.draw.randrange(3),
                retries=self.draw.randrange(2),
                after=(job_id - 1,) if job_id % 7 == 0 and not self.has_ended(job_id - 1) else (),
                time_limit_ns=(20 if job_id % 5 == 0 else 1000) * SECOND_NS,
            )
            if self.elastic and job_id % 2:
                spec = self.make_elastic_spec(spec)
            assert self.machine.check(spec) is None
            self.tell([events.Submitted((job_id,), spec)])
        self.now_ns += 1
        last = [job_id for job_id, job in self.machine.jobs.items() if not job.state.is_final][-1:]
        self.tell([events.Cancelled(job_id, "by user 0") for job_id in last])
        self.catch_up(all_of_it=True)
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        assert all(job.state.is_final for job in self.machine.jobs.values())
        return replay.read(self.path)

    def make_elastic_spec(self, spec: JobSpec) -> JobSpec:
        if self.draw.randrange(2):
            most = 1 if spec.queue == "team" else self.draw.choice([2, 3, 4])
            members = Elastic(least_members=1, most_members=most)
            return replace(spec, ask=Ask(Spec(500)), members=1, elastic=members)
        return replace(spec, ask=Ask(Spec(250)), members=1, elastic=Elastic(250, self.draw.choice([500, 1000])))

    def has_ended(self, job_id: int) -> bool:
        return self.machine.jobs[job_id].state.is_final

    def catch_up(self, all_of_it: bool = False) -> None:
        until_ns = self.now_ns
        while self.coming and (all_of_it or min(self.coming)[0] <= until_ns):
            first = min(self.coming, key=lambda one: one[:2])
            self.coming.remove(first)
            self.now_ns = first[0]
            self.tell([first[2]])
        self.now_ns = max(self.now_ns, until_ns)


def test_the_recordings_have_every_way_to_free_capacity(tmp_path: Path) -> None:
    hows = set()
    for seed in range(4):
        live = Live(tmp_path / "queue.jsonl", seed=seed)
        recording = live.run()
        stops = [stop for job_id in live.machine.jobs for stop in replay._stops(recording, job_id)]
        hows |= {how for _, how, _ in stops}
    assert hows >= {None, How.EVICT, How.REQUEUE}


@pytest.mark.parametrize("policy", ["fifo", "priority(preempt)", "2d-las(2,6)"])
@pytest.mark.parametrize("seed", range(8))
def test_decided_again_in_the_same_way(tmp_path: Path, policy: str, seed: int) -> None:
    recording = Live(tmp_path / "queue.jsonl", policy, seed).run()
    assert list(replay.same_commands(recording)) == []
    live = replay.recorded_decisions(recording)
    assert len(live) > 20
    assert policy == "fifo" or any(decision[0] == "StopJob" and decision[2] for decision in live)
    assert replay.simulated_decisions(recording) == live


@pytest.mark.parametrize("policy", ["fifo", "priority(preempt)", "2d-las(2,6)"])
@pytest.mark.parametrize("seed", range(8))
def test_jobs_are_resized_again_in_the_same_way(tmp_path: Path, policy: str, seed: int) -> None:
    recording = Live(tmp_path / "queue.jsonl", policy, seed, elastic=True).run()
    assert list(replay.same_commands(recording)) == []
    live = replay.recorded_decisions(recording)
    assert any(decision[0] == "ResizeJob" for decision in live)
    assert replay.simulated_decisions(recording) == live


def test_what_is_decided_otherwise_is_named(tmp_path: Path) -> None:
    live = Live(tmp_path / "queue.jsonl")
    live.run()
    header = json.loads(json.dumps(live.lines[0]))
    header["queues"][0]["policy"] = "fifo"
    lines = [json.dumps(line) for line in (header, *live.lines[1:])]
    live.path.write_text("\n".join(lines) + "\n")
    other = replay.read(live.path)
    first = next(replay.same_commands(other))
    assert first.startswith("step ") and "recorded" in first
    assert replay.simulated_decisions(other) != replay.recorded_decisions(other)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{}"], "queue.jsonl:1: 'queues' is missing"),
        (['{"queues": [], "nodes": []}', '{"at_ns": 1}'], "queue.jsonl:2: 'event' is missing"),
        (['{"queues": [], "nodes": []}', '{"at_ns": 1, "event": {"type": "Tea"}}'], "queue.jsonl:2: type 'Tea' is no"),
        (['{"queues": [], "nodes": []}', '{"at_ns": 1, "event": "Tea"}'], "queue.jsonl:2: 'str' object has no"),
        (['{"queues": [{"name": "q", "policy": "tea"}], "nodes": []}'], "queue.jsonl:1: there is no policy 'tea'"),
        (["tea"], "queue.jsonl:1: Expecting value"),
    ],
)
def test_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "queue.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(TraceError, match=message):
        replay.read(path)
