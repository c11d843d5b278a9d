"""What the daemon concludes from what running jobs do: with a clock and counters of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import GIB, MIB, make_device
from vgpud.core import origins
from vgpud.core.colocate.usage import FIRST_LOOK_NS
from vgpud.core.elastic.autoscaler import Autoscaler
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import ProgressReport, new_group
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.facts import Launch, Predicted
from vgpud.core.jobs.model import SECOND_NS, Ask, Elastic, Job, JobSpec, JobState, Place
from vgpud.core.model import Share, Slice, Spec, State
from vgpud.core.observed import SliceStats
from vgpud.daemon.jobs import measured_rows
from vgpud.daemon.jobs.progress import LOOK_NS, ProgressMonitor, Watched
from vgpud.predict import dataset
from vgpud.predict.features import FEATURES, Features
from vgpud.store.database import Store
from vgpud.store.elastic import ElasticStore
from vgpud.store.jobs import JobStore

DEVICE = make_device(name="H200", memory_bytes=8 * GIB, context_bytes=256 * MIB)


def launch(prediction: Predicted | None = None) -> Launch:
    return Launch(0, 0, (), ("train",), "", "/", (), 0, (), "/log", prediction=prediction)


class Jobs:
    """The job controller, as far as it is asked; what is reported to it is kept."""

    def __init__(self, directory: Path) -> None:
        self.now_ns = 1
        self.jobs: dict[int, Job] = {}
        self.machine = SimpleNamespace(jobs=self.jobs)
        self.clock = SimpleNamespace(now_ns=lambda: self.now_ns)
        self.counters: dict[str, SliceStats] = {}
        state = State()
        state.devices[DEVICE.uuid] = DEVICE
        self.host = SimpleNamespace(
            slices=SimpleNamespace(state=state),
            config=SimpleNamespace(current=SimpleNamespace(state=directory)),
            counters=SimpleNamespace(of_slice=lambda made: [self.counters.get(made.name, SliceStats())]),
        )
        self.slices = SimpleNamespace(
            of=lambda job: [made for made in state.slices.values() if made.origin.queue_job_id == job.job_id]
        )
        self.store = JobStore(Store(directory))
        self.queue_events: list[qe.Event] = []
        self.notes: list[tuple[str, str]] = []
        self.groups: dict[int, LiveGroup] = {}
        self.elastic: Any = SimpleNamespace(
            groups=SimpleNamespace(of_job=lambda job: self.groups.get(job.job_id)), commands=SimpleNamespace()
        )

    def enqueue_event(self, event: qe.Event) -> None:
        self.queue_events.append(event)

    def note(self, kind: str, job: Job, text: str) -> None:
        self.notes.append((kind, text))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)  # type: ignore[arg-type]

    def add(self, job_id: int, numbers: tuple[int | None, ...] = (None,), **fields: Any) -> Job:
        """A job that runs from now on."""
        share = Share(DEVICE.uuid, 500, 1000, 1 << 30, 1 << 30)
        ask = Ask(Spec(500), kind=fields.pop("kind", f"kind{job_id}"))
        spec = JobSpec(ask, run=fields.pop("run", launch()), **fields)
        job = Job(job_id, spec, 0, state=JobState.RUNNING, attempt=1, started_ns=self.now_ns)
        job.placement = (Place("n1", (share,)),) * spec.members
        for origin in (origins.Job(job_id, member) for member in numbers):
            made = Slice(origin, origin.slice_name(), job_id, spec.ask.spec, (share,), 0, 0)
            self.host.slices.state.slices[made.name] = made
        self.jobs[job_id] = job
        self.store.save([job])
        return job


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


@pytest.fixture
def progress(jobs: Jobs) -> ProgressMonitor:
    return ProgressMonitor(jobs, jobs.elastic)  # type: ignore[arg-type]


def pass_time(jobs: Jobs, progress: ProgressMonitor, seconds: int, **used_milli: int) -> None:
    """Each slice (j_1 is j-1) uses that part of its device meanwhile, and launches as often."""
    for _ in range(0, seconds * SECOND_NS, LOOK_NS):
        jobs.now_ns += LOOK_NS
        for name, milli in used_milli.items():
            key = name.replace("_", "-")
            before = jobs.counters.get(key, SliceStats())
            charged_ns = before.charged_ns + LOOK_NS * milli // 1000
            share = milli / 1000
            jobs.counters[key] = replace(
                before,
                charged_ns=charged_ns,
                launches=before.launches + milli,
                share_60s_ratio=share,
                mem_peak_bytes=3 << 20,
            )
        progress.tick()


def test_what_a_job_uses_is_reported_after_a_minute_in_steps(jobs: Jobs, progress: ProgressMonitor) -> None:
    progress.see(jobs.add(1))
    pass_time(jobs, progress, 60, j_1=0)
    assert jobs.queue_events == [], "it has not begun to use its device"
    pass_time(jobs, progress, 60, j_1=420)
    assert jobs.queue_events == []
    pass_time(jobs, progress, 10, j_1=420)
    assert jobs.queue_events == [qe.Measured(1, 450)]
    assert progress.measured_milli(1) == 450
    pass_time(jobs, progress, 1200, j_1=430)
    assert len(jobs.queue_events) == 1, "nothing has changed"
    pass_time(jobs, progress, 1200, j_1=800)
    assert jobs.queue_events[1:] == [qe.Measured(1, 800)]
    assert FIRST_LOOK_NS == 60 * SECOND_NS


def test_a_look_costs_as_much_as_there_are_jobs_and_not_their_square(jobs: Jobs, progress: ProgressMonitor) -> None:
    count = 100
    for job_id in range(1, count + 1):
        progress.see(jobs.add(job_id))
    names = {f"j_{job_id}": 5 for job_id in range(1, count + 1)}
    pass_time(jobs, progress, 70, **names)
    asked, counters = [0], jobs.host.counters.of_slice

    def count_query(slice_: Slice) -> list[SliceStats]:
        asked[0] += 1
        return counters(slice_)  # type: ignore[no-any-return]

    jobs.host.counters.of_slice = count_query
    pass_time(jobs, progress, 5, **names)
    assert 0 < asked[0] < 10 * count


def test_it_is_not_reported_where_jobs_are_not_placed_by_it(jobs: Jobs, progress: ProgressMonitor) -> None:
    progress.see(jobs.add(1, kind=""))
    pass_time(jobs, progress, 180, j_1=420)
    assert jobs.queue_events == []
    assert progress.measured_milli(1) == 450


def test_a_job_that_loses_beside_another_is_separated_and_that_is_remembered(
    jobs: Jobs, progress: ProgressMonitor
) -> None:
    progress.see(jobs.add(1))
    pass_time(jobs, progress, 120, j_1=800)
    progress.see(jobs.add(2))
    pass_time(jobs, progress, 600, j_1=100, j_2=100)
    assert not [event for event in jobs.queue_events if isinstance(event, qe.PairLoses)], (
        "how fast the second is, nobody knows"
    )
    jobs.jobs[2].spec = replace(jobs.jobs[2].spec, ask=replace(jobs.jobs[2].spec.ask, utilisation_milli=800))
    pass_time(jobs, progress, 300, j_1=100, j_2=100)
    (lost,) = [event for event in jobs.queue_events if isinstance(event, qe.PairLoses)]
    assert (lost.job_id, lost.other_id) == (2, 1)
    assert ElasticStore(jobs.store.database).pairs() == (("kind1", "kind2"),)
    next_one = Jobs.__new__(Jobs)
    next_one.__dict__ |= jobs.__dict__ | {"queue_events": []}
    ProgressMonitor(next_one, jobs.elastic).start()  # type: ignore[arg-type]
    assert next_one.queue_events == [qe.PairsKnown((("kind1", "kind2"),))]


def test_an_anomaly_is_reported_to_its_owner(jobs: Jobs, progress: ProgressMonitor) -> None:
    progress.see(jobs.add(1))
    pass_time(jobs, progress, 600, j_1=700)
    assert progress.anomalies_of(1) == ()
    pass_time(jobs, progress, 300, j_1=1)
    (note,) = jobs.notes
    assert note[0] == "job.anomaly"
    assert "usually wants 70 %" in note[1]
    assert progress.anomalies_of(1) == (note[1],)
    progress.note_fault(DEVICE.uuid, 13)
    assert len(jobs.notes) == 1, "a program's own fault"
    progress.note_fault(DEVICE.uuid, 48)
    progress.note_fault(DEVICE.uuid, 48)
    assert "device 0, which it runs on, had XID 48" in jobs.notes[1][1]
    assert len(jobs.notes) == 2


def workers(jobs: Jobs) -> Job:
    job = jobs.add(1, (0, 1), members=2, elastic=Elastic(least_members=1, most_members=4))
    group = jobs.groups[1] = LiveGroup(job, new_group(job))
    group.record.renew((0, 1))
    return job


def test_an_autoscaler_is_fed_with_what_workers_say(jobs: Jobs, progress: ProgressMonitor) -> None:
    job = workers(jobs)
    progress.see(job)
    progress.set_members(job, (0, 1))
    for _ in range(300):
        for worker in (0, 1):
            progress.add_report(ProgressReport(1, 1, worker, samples=100, seconds_ns=SECOND_NS, steps=10))
    pass_time(jobs, progress, 5, j_1_0=500, j_1_1=500)
    assert progress.rate(1) == 200
    (target,) = [event for event in jobs.queue_events if isinstance(event, qe.Wished)]
    assert target.members > 2
    progress.save()
    kept = str(jobs.store.facts(1)["scaler"])
    assert "means" in kept
    assert isinstance(progress._restore_scaler(job), Autoscaler)
    assert progress._restore_scaler(job).state() == progress._scalers[1].state()


def test_no_target_for_one_of_which_nothing_is_known(jobs: Jobs, progress: ProgressMonitor) -> None:
    job = workers(jobs)
    progress.see(job)
    progress.set_members(job, (0, 1))
    pass_time(jobs, progress, 60, j_1_0=0, j_1_1=0)
    assert jobs.queue_events == []


def test_without_a_word_it_goes_by_launches(jobs: Jobs, progress: ProgressMonitor) -> None:
    job = workers(jobs)
    progress.see(job)
    progress.set_members(job, (0, 1))
    pass_time(jobs, progress, 600, j_1_0=500, j_1_1=500)
    assert [event for event in jobs.queue_events if isinstance(event, qe.Wished)]
    assert progress.rate(1) > 0


def test_a_job_that_ends_leaves_its_measured_row(
    jobs: Jobs, progress: ProgressMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    range_ = (0.5, 0.4, 0.6)
    features = tuple(sorted((name, 1.0) for name in FEATURES))
    predicted = Predicted("net:make", "H200", range_, range_, range_, features=features)
    path = jobs.host.config.current.state / measured_rows.FILE_NAME
    for job_id in (1, 2):
        job = jobs.add(job_id, run=launch(predicted))
        progress.see(job)
        progress.add_report(ProgressReport(job_id, 1, 0, samples=100, seconds_ns=2 * SECOND_NS, steps=10))
        pass_time(jobs, progress, 90, **{f"j_{job_id}": 400})
        progress.ends(job, True)
        job.state = JobState.COMPLETED
        progress.see(job)
        del jobs.host.slices.state.slices[f"j-{job_id}"]
        (row,) = dataset.read(path)
        assert (row.device, row.architecture, row.utilisation) == ("H200", "net:make", 0.4)
        assert (row.memory_bytes, row.step_ns) == (3 << 20, 0.2 * SECOND_NS)
        monkeypatch.setattr(measured_rows, "FILE_BYTES", 1)
    assert len(dataset.read(path.with_suffix(".1.csv"))) == 1, "the full one is kept beside it"
    failed = jobs.add(3, run=launch(predicted))
    progress.see(failed)
    pass_time(jobs, progress, 90, j_3=400)
    progress.ends(failed, False)
    assert len(dataset.read(path)) == 1


@pytest.mark.parametrize("spoilt", ["capped", "shared", "nonsense"])
def test_what_was_not_measured_alone_is_not_in_its_row(jobs: Jobs, progress: ProgressMonitor, spoilt: str) -> None:
    """Else a predictor would learn what it has predicted, as that was the job's maximum."""
    range_ = (0.5, 0.4, 0.6)
    features = tuple(sorted((name, 1.0) for name in FEATURES))
    job = jobs.add(1, run=launch(Predicted("net:make", "H200", range_, range_, range_, features=features)))
    made = jobs.host.slices.state.slices["j-1"]
    if spoilt == "capped":
        jobs.host.slices.state.slices["j-1"] = replace(made, shares=(replace(made.shares[0], max_milli=500),))
    if spoilt == "shared":
        jobs.host.slices.state.slices["other"] = replace(made, origin=origins.User("other"))
    progress.see(job)
    seconds_ns = 366 * 86400 * SECOND_NS if spoilt == "nonsense" else SECOND_NS
    progress.add_report(ProgressReport(1, 1, 0, samples=100, seconds_ns=seconds_ns, steps=1))
    pass_time(jobs, progress, 90, j_1=400, **({"other": 100} if spoilt == "shared" else {}))
    progress.ends(job, True)
    (row,) = dataset.read(jobs.host.config.current.state / measured_rows.FILE_NAME)
    assert (row.utilisation, row.step_ns, row.memory_bytes) == (0.4 if spoilt == "nonsense" else None, None, 3 << 20)


def test_a_job_of_another_size_is_measured_again(jobs: Jobs, progress: ProgressMonitor) -> None:
    job = jobs.add(1)
    progress.see(job)
    pass_time(jobs, progress, 70, j_1=250)
    job.resized_ns = jobs.now_ns
    progress.see(job)
    pass_time(jobs, progress, 55, j_1=900)
    assert jobs.queue_events == [qe.Measured(1, 250)], "what it had before counts in its last minute"
    pass_time(jobs, progress, 15, j_1=900)
    assert jobs.queue_events[1:] == [qe.Measured(1, 900)]


def test_a_full_disk_costs_no_older_row(
    jobs: Jobs, progress: ProgressMonitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = jobs.host.config.current.state / measured_rows.FILE_NAME
    row = dataset.Row("H200", "mlp", "a", Features(dict.fromkeys(FEATURES, 1.0)), utilisation=0.5)
    measured_rows.append(path.parent, row)
    before = path.read_bytes()
    monkeypatch.setattr(dataset.os, "open", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    measured_rows.append(path.parent, row)
    assert path.read_bytes() == before and not path.with_suffix(".1.csv").exists()
    assert "No space left" in caplog.text


def test_a_slice_without_counters_says_nothing_of_its_peak() -> None:
    known = Watched(1)
    known.update_peak(())
    assert known.peak_bytes == 0
