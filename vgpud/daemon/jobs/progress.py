"""The part of the composition root that monitors running jobs: progress, usage, anomalies.

Made by JobController, which calls it once a second. It feeds what programs report, or their launches as the hooks count
them, to an autoscaler for each job with workers (core/elastic), whose targets go to the queue. From the arbiters'
account of device time it reports to the queue what jobs use, where they are placed by that, and which jobs slow each
other down (core/colocate); owners are notified of anomalies (core/queue/anomalies.py). What took long to learn is saved
for the next daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vgpud.core.colocate.usage import FIRST_LOOK_NS, utilisation_milli
from vgpud.core.colocate.watch import Seen, Watch
from vgpud.core.devices import faults
from vgpud.core.elastic.autoscaler import Autoscaler
from vgpud.core.elastic.worker_group import ProgressReport, has_workers
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import SECOND_NS, Job, JobState
from vgpud.core.model import Slice
from vgpud.core.observed import SliceStats
from vgpud.core.queue.anomalies import Anomalies, Sample
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.daemon.jobs import measured_rows
from vgpud.daemon.jobs.elastic import ElasticController
from vgpud.daemon.jobs.ports import MonitorPort
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreError
from vgpud.store.elastic import ElasticStore

log = logging.getLogger("vgpud")

#: how often jobs are looked at, and what was learnt is saved
LOOK_NS, SAVE_NS = 5 * SECOND_NS, 30 * SECOND_NS
#: resolution of measured usage; it is reported again when it is off by two steps, and after AGAIN_NS at the earliest
STEP_MILLI = 50
AGAIN_NS = 600 * SECOND_NS
#: share of a device that others may have while a job still counts as alone on it: counts are rounded
OTHERS_MILLI = 10
#: pairs that could not be saved yet
PAIRS_MAX = 1000


@dataclass(slots=True)
class Watched:
    """A running job. Counts are of this attempt, since this daemon was started."""

    attempt: int
    anomalies: Anomalies = field(default_factory=Anomalies)
    resized_ns: int = -1
    first_used_ns: int = -1  # when it first used a device
    said_ns: int = -1  # when its program last sent a report
    has_ignored_report: bool = False  # a report was ignored as impossible
    samples: int = 0
    steps: int = 0
    spent_ns: int = 0  # time in its reports
    launches: dict[str, int] = field(default_factory=dict)  # by slice, at the last look
    looked_ns: int = -1
    done: int = -1  # units at the last look, -1 = not known; then the unit
    unit: str = ""
    rate: float = 0.0  # units per second
    measured_milli: int = -1
    reported_ns: int = -1  # when the queue last heard of measured_milli
    to_itself: bool = True  # at each look: what it did and used is what it does and uses alone
    peak_bytes: int = 0

    def update_peak(self, counters: Sequence[SliceStats]) -> None:
        """Peak memory of its slices; a slice without counters adds nothing."""
        self.peak_bytes = max([self.peak_bytes, *(one.mem_peak_bytes for one in counters)])


class ProgressMonitor:
    def __init__(self, jobs: MonitorPort, elastic: ElasticController) -> None:
        self._jobs = jobs
        self._elastic = elastic
        self._watched: dict[int, Watched] = {}
        self._scalers: dict[int, Autoscaler] = {}
        self._saved: dict[int, str] = {}  # state of each autoscaler in the store
        self._watch = Watch()
        self._unsaved_pairs: list[tuple[str, str]] = []
        self._look_at_ns = self._save_at_ns = 0
        self._busy_milli: dict[str, int] = {}  # by device, computed once in a look
        elastic.commands.on_progress = self.add_report
        elastic.commands.on_joined = self.set_members

    # ---- events ----

    def see(self, job: Job) -> None:
        """A job that has been decided on, in its present state."""
        known = self._watched.get(job.job_id)
        if job.state is not JobState.RUNNING:
            if known:
                del self._watched[job.job_id]
                self._watch.forget_job(job.job_id)
            if job.state.is_final:
                self._scalers.pop(job.job_id, None)
                self._saved.pop(job.job_id, None)
            return
        if known is None or known.attempt != job.attempt:
            known = self._watched[job.job_id] = Watched(job.attempt)
        if known.resized_ns != job.resized_ns:
            known.resized_ns = job.resized_ns
            known.first_used_ns = known.reported_ns = -1  # usage with another size does not count
            known.anomalies.reset_detectors()

    def add_report(self, report: ProgressReport) -> None:
        """What a program has done since its last report."""
        known = self._watched.get(report.job_id)
        if known is None or known.attempt != report.attempt:
            return
        now_ns = self._jobs.clock.now_ns()
        known.said_ns = now_ns
        known.samples, known.steps = known.samples + report.samples, known.steps + report.steps
        known.spent_ns += report.seconds_ns * bool(report.steps)
        scaler = self._scalers.get(report.job_id)
        if scaler and report.samples:
            ignored = scaler.add_report(
                report.worker, report.samples, report.seconds_ns, report.steps, now_ns, waited_ns=report.waited_ns
            )
            if ignored and not known.has_ignored_report:
                known.has_ignored_report = True  # noted once
                job = self._jobs.machine.jobs[report.job_id]
                self._jobs.note("job.anomaly", job, f"its reports are not counted: {ignored}")

    def set_members(self, job: Job, members: tuple[int, ...]) -> None:
        """All members of another membership work."""
        self._scaler(job).set_workers(members, self._jobs.clock.now_ns())

    def _scaler(self, job: Job) -> Autoscaler:
        found = self._scalers.get(job.job_id)
        if found is None:
            found = self._scalers[job.job_id] = self._restore_scaler(job)
        return found

    def _restore_scaler(self, job: Job) -> Autoscaler:
        assert job.spec.elastic
        try:
            kept = str(self._jobs.store.facts(job.job_id).get("scaler", ""))
            if kept:
                return Autoscaler.from_state(job.spec.elastic, json.loads(kept))
        except (StoreError, ValueError) as error:
            log.warning("what was learned of job %d is learned again: %s", job.job_id, error)
        return Autoscaler(job.spec.elastic)

    def note_fault(self, device_uuid: str, xid: int) -> None:
        """The driver has reported a fault of a device."""
        device = self._jobs.host.slices.state.devices.get(device_uuid)
        if device is None or not faults.is_devices(xid):
            return
        for job_id, known in self._watched.items():
            job = self._jobs.machine.jobs[job_id]
            if any(made.share(device_uuid) for made in self._jobs.slices.of(job)):
                text = known.anomalies.fault(f"device {device.index}", xid, faults.in_words(xid))
                if text:
                    self._jobs.note("job.anomaly", job, text)

    # ---- results ----

    def anomalies_of(self, job_id: int) -> tuple[str, ...]:
        """The anomalies of a running job that are still present."""
        known = self._watched.get(job_id)
        return known.anomalies.present if known else ()

    def rate(self, job_id: int) -> float:
        """Samples in a second as the program reports, else its launches; 0 = not known."""
        scaler, known = self._scalers.get(job_id), self._watched.get(job_id)
        if scaler and scaler.rate_milli:
            return scaler.rate_milli / 1000
        return known.rate if known else 0.0

    def measured_milli(self, job_id: int) -> int:
        """Of each of its devices; -1 = not measured."""
        known = self._watched.get(job_id)
        return known.measured_milli if known else -1

    # ---- periodic ----

    def start(self) -> None:
        """Loads what the former daemon has learned."""
        try:
            pairs = ElasticStore(self._jobs.store.database).pairs()
        except StoreError as error:
            log.warning("%s", error)
            return
        if pairs:
            self._jobs.enqueue_event(qe.PairsKnown(pairs))

    def tick(self) -> None:
        now_ns = self._jobs.clock.now_ns()
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + LOOK_NS
            self._look(now_ns)
        for job_id, scaler in self._scalers.items():
            job = self._jobs.machine.jobs.get(job_id)
            if job and job.state is JobState.RUNNING and not job.stopping:
                self._ask(job, scaler, now_ns)
        if now_ns >= self._save_at_ns:
            self._save_at_ns = now_ns + SAVE_NS
            self.save()

    def _ask(self, job: Job, scaler: Autoscaler, now_ns: int) -> None:
        # a job of which nothing is known may have as many workers as there is capacity for
        if target := scaler.take_new_target(now_ns) if scaler.rate_milli else None:
            self._jobs.enqueue_event(qe.Wished(job.job_id, target.members, target.why))
            self._jobs.note("job.wished", job, f"{target.members} workers pay off: {target.why}")
        for straggler in scaler.stragglers(now_ns):
            self._jobs.note("job.anomaly", job, straggler.why)
            self._jobs.spawn(self._elastic.replace_straggler(job.job_id, straggler.worker, straggler.why))

    def save(self) -> None:
        """Saves what has changed since the last call."""
        try:
            for job_id, scaler in self._scalers.items():
                text = json.dumps(scaler.state())
                if text != self._saved.get(job_id):
                    self._jobs.store.set_facts(job_id, self._jobs.store.facts(job_id) | {"scaler": text})
                    self._saved[job_id] = text
            while self._unsaved_pairs:
                pair = self._unsaved_pairs[0]
                ElasticStore(self._jobs.store.database).add_pair(*pair, self._jobs.clock.now_ns())
                self._unsaved_pairs.pop(0)
        except StoreError as error:
            log.warning("%s", error)

    # ---- looking ----

    def _look(self, now_ns: int) -> None:
        shared = False
        self._busy_milli.clear()
        for job_id, known in list(self._watched.items()):
            job = self._jobs.machine.jobs.get(job_id)
            if job is None or job.state is not JobState.RUNNING:
                del self._watched[job_id]
                continue
            self._look_at(job, known, now_ns)
            shared = shared or bool(job.spec.ask.kind)
        if shared:
            self._look_for_slow_pairs(now_ns)

    def _look_at(self, job: Job, tracker: Watched, now_ns: int) -> None:
        used_ns = waited_ns = launches = devices = 0
        by_slice: dict[str, int] = {}
        for made in self._jobs.slices.of(job):
            counters = self._jobs.host.counters.of_slice(made)
            used_ns += sum(one.charged_ns for one in counters)
            waited_ns += sum(one.throttled_ns for one in counters)
            by_slice[made.name] = sum(one.launches for one in counters)
            launches += by_slice[made.name]
            devices += len(counters)
            tracker.update_peak(counters)
        reports = tracker.said_ns >= 0
        done, unit = (
            (tracker.samples or tracker.steps, "sample" if tracker.samples else "step")
            if reports
            else (launches or -1, "launch")
        )
        if tracker.looked_ns >= 0 and unit == tracker.unit and 0 <= tracker.done <= done:
            tracker.rate = (done - tracker.done) * SECOND_NS / max(1, now_ns - tracker.looked_ns)
        if has_workers(job) and not reports:
            self._go_by_launches(job, tracker, by_slice, now_ns)
        tracker.launches, tracker.looked_ns, tracker.done, tracker.unit = by_slice, now_ns, done, unit
        if not devices:
            return
        for text in tracker.anomalies.look(Sample(now_ns, used_ns, waited_ns, devices, done, unit)):
            self._jobs.note("job.anomaly", job, text)
        if used_ns and tracker.first_used_ns < 0:
            tracker.first_used_ns = now_ns
        tracker.to_itself = tracker.to_itself and self._has_to_itself(job)
        if tracker.first_used_ns >= 0 and now_ns - tracker.first_used_ns >= FIRST_LOOK_NS:
            self._measure(job, tracker, now_ns)

    def _go_by_launches(self, job: Job, tracker: Watched, by_slice: dict[str, int], now_ns: int) -> None:
        """Its program sends no reports. More workers each get less of a fixed batch, with as many launches."""
        group = self._elastic.groups.of_job(job)
        if group is None or tracker.looked_ns < 0:
            return
        numbers = group.record.members or tuple(worker.number for worker in group.record.retained_workers)
        scaler = self._scaler(job)
        if set(tracker.launches) != {JobSlices.of_worker(job.job_id, number) for number in numbers}:
            scaler.set_workers(numbers, now_ns)
            return
        grows = isinstance(job.spec.run, Launch) and job.spec.run.batch_max > 0
        for number in numbers:
            name = JobSlices.of_worker(job.job_id, number)
            more = by_slice.get(name, 0) - tracker.launches.get(name, 0)
            if more > 0:
                samples = more * 1000 if grows else more * 1000 // len(numbers)
                scaler.add_report(number, max(1, samples), now_ns - tracker.looked_ns, 0, now_ns)

    def _measure(self, job: Job, tracker: Watched, now_ns: int) -> None:
        """Its usage of each of its devices in the last minute, as if alone (core/colocate/usage.py)."""
        slices = self._jobs.slices.of(job)
        predicted = job.spec.ask.utilisation_milli if tracker.measured_milli < 0 else tracker.measured_milli
        found = [
            utilisation_milli(round(now.share_60s_ratio * MILLI_PER_DEVICE), self._busy(share.device_uuid), predicted)
            for made in slices
            for share, now in zip(made.shares, self._jobs.host.counters.of_slice(made), strict=True)
        ]
        if not found:
            return
        mean = sum(found) // len(found)
        milli = min(MILLI_PER_DEVICE, -(-mean // STEP_MILLI) * STEP_MILLI)
        too_soon = tracker.reported_ns >= 0 and (
            now_ns - tracker.reported_ns < AGAIN_NS or abs(milli - tracker.measured_milli) < 2 * STEP_MILLI
        )
        if too_soon:
            return
        tracker.measured_milli, tracker.reported_ns = milli, now_ns
        if job.spec.ask.kind:  # its queue goes by it
            self._jobs.enqueue_event(qe.Measured(job.job_id, milli))

    def _has_to_itself(self, job: Job) -> bool:
        """Whether no other slice uses its devices, and no maximum keeps it from using all of them."""
        return all(
            share.max_milli >= MILLI_PER_DEVICE
            and self._busy(share.device_uuid) <= round(now.share_60s_ratio * MILLI_PER_DEVICE) + OTHERS_MILLI
            for made in self._jobs.slices.of(job)
            for share, now in zip(made.shares, self._jobs.host.counters.of_slice(made), strict=True)
        )

    def _busy(self, device_uuid: str) -> int:
        """Milli of a device's time in the last minute that slices used."""
        if device_uuid not in self._busy_milli:
            on_it = (made for made in self._jobs.host.slices.state.slices.values() if made.share(device_uuid))
            share = sum(self._share(made, device_uuid) for made in on_it)
            self._busy_milli[device_uuid] = round(share * MILLI_PER_DEVICE)
        return self._busy_milli[device_uuid]

    def _share(self, slice_: Slice, device_uuid: str) -> float:
        counters = zip(slice_.shares, self._jobs.host.counters.of_slice(slice_), strict=True)
        return next(now.share_60s_ratio for share, now in counters if share.device_uuid == device_uuid)

    def _look_for_slow_pairs(self, now_ns: int) -> None:
        """Gandiva's undo (Xiao et al., OSDI'18): separates jobs that get less done together than in turn."""
        for device_uuid in self._jobs.host.slices.state.devices:
            for lost in self._watch.look(device_uuid, self._observe_jobs(device_uuid), now_ns):
                self._jobs.enqueue_event(lost)
                jobs = self._jobs.machine.jobs
                pair = jobs[lost.job_id].spec.ask.kind, jobs[lost.other_id].spec.ask.kind
                if all(pair) and len(self._unsaved_pairs) < PAIRS_MAX:
                    self._unsaved_pairs.append(pair)
                    self.save()

    def _observe_jobs(self, device_uuid: str) -> Iterator[Seen]:
        for job_id, known in self._watched.items():
            job = self._jobs.machine.jobs[job_id]
            used_ns = 0
            there = False
            for made in self._jobs.slices.of(job):
                for share, now in zip(made.shares, self._jobs.host.counters.of_slice(made), strict=True):
                    if share.device_uuid == device_uuid:
                        there, used_ns = True, used_ns + now.charged_ns
            if there:
                yield Seen(
                    job_id,
                    job.spec.ask.kind,
                    job.started_ns,
                    known.done,
                    known.unit,
                    used_ns,
                    job.spec.ask.utilisation_milli,
                    job.spec.uid,
                )

    # ---- a job ends ----

    def ends(self, job: Job, well: bool) -> None:
        """Its processes have gone, its slices' counters are still there: saves what was measured."""
        known, launch = self._watched.get(job.job_id), job.spec.run
        if scaler := self._scalers.get(job.job_id):
            scaler.set_workers((), self._jobs.clock.now_ns())
        if known is None or not well or not isinstance(launch, Launch) or launch.prediction is None:
            return
        for made in self._jobs.slices.of(job):
            counters = self._jobs.host.counters.of_slice(made)
            known.update_peak(counters)
        devices = self._jobs.host.slices.state.devices
        uuids = [share.device_uuid for place in job.placement for share in place.shares]
        name = devices[uuids[0]].name if uuids and uuids[0] in devices else "unknown"
        used = known.measured_milli / MILLI_PER_DEVICE if known.measured_milli >= 0 and known.to_itself else None
        step_ns = known.spent_ns // known.steps if known.steps and known.to_itself else 0
        row = measured_rows.row_of(launch.prediction, name, used, known.peak_bytes, step_ns)
        if row:
            self._jobs.spawn(asyncio.to_thread(measured_rows.append, self._jobs.host.config.current.state, row))
