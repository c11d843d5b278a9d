"""Jobs change their size while they run, elastic ones by themselves, others as asked (running_size.py): commands to the
shell, and its answers.

From the decision on, a job's spec, its quota and its reservation are those of the new size; `resizing` is set until the
shell has done it. A job that gets what another one gives has a claim until then.
"""

from __future__ import annotations

from collections.abc import Callable

from vgpud.core.jobs.events import Command, Note, Resized, ResizeJob, SaveJob, Wished
from vgpud.core.jobs.model import Job, JobSpec, JobState
from vgpud.core.queue import reasons, sizes
from vgpud.core.queue.state import QueueState


class Resizing:
    """The steps. `say` receives the commands."""

    def __init__(self, world: QueueState, say: Callable[[Command], None]) -> None:
        self._world = world
        self._say = say

    def begin(self, job: Job, old_spec: JobSpec, why: str, now_ns: int) -> None:
        """The world counts its new size already."""
        world = self._world
        job.resizing = world.held[job.job_id]
        self._note_shrinking(job)
        world.acted_ns = now_ns
        self._run_again(job, now_ns)
        self._say(SaveJob(job))
        self._tell(job, why)
        spec = job.spec
        sizes_said = f"from {sizes.words(old_spec, sizes.size(old_spec))} to {sizes.words(spec, sizes.size(spec))}"
        self._say(Note("job.resized", job.job_id, f"{sizes_said}: {why}"))

    def _tell(self, job: Job, why: str) -> None:
        self._say(ResizeJob(job.job_id, job.attempt, job.resizing, why))

    def _note_shrinking(self, job: Job) -> None:
        left = sizes.subtract_placement(job.spec, job.placement, job.resizing)
        if left:
            self._world.shrinking[job.job_id] = left
            self._world.count_shrinking(job, 1)

    def _clear_shrinking(self, job: Job) -> None:
        if job.job_id in self._world.shrinking:
            self._world.count_shrinking(job, -1)
            del self._world.shrinking[job.job_id]

    def _run_again(self, job: Job, now_ns: int) -> None:
        """Running jobs are ordered with their width."""
        self._world.line(job).stop(job.job_id)
        self._world.run(job, now_ns)

    # ---- what the shell answers ----

    def update_size(self, event: Resized, now_ns: int) -> bool:
        """Returns whether it has kept capacity that was given to other jobs."""
        world = self._world
        job = world.jobs.get(event.job_id)
        if job is None or job.state is not JobState.RUNNING or event.attempt != job.attempt:
            return False
        if job.job_id in world.stopping or not event.placement or not (job.spec.elastic or job.resizing):
            return False
        # the shell reports where it is; what is known of the job there comes from the queue
        has, decided = (
            world.cluster.annotate_placement(job, placement) for placement in (event.placement, world.held[job.job_id])
        )
        asked = bool(job.resizing)
        self._clear_shrinking(job)
        job.resizing, job.placement, job.resized_ns = (), has, now_ns
        world.acted_ns = now_ns
        world.hold(job, decided)
        kept = False
        if has != decided:
            kept = bool(sizes.subtract_placement(job.spec, has, decided))
            spec = sizes.with_size(job.spec, sizes.has(job.spec, has))
            world.resize(job, spec, has, now_ns)
            self._run_again(job, now_ns)
            if asked:
                if spec.elastic:
                    world.left_alone_ns[job.job_id] = now_ns + world.line(job).spec.elastic_idle_ns
                have = sizes.words(spec, sizes.size(spec))
                self._say(Note("job.resize_failed", job.job_id, f"it has {have}: {event.why or 'no reason was given'}"))
        self._say(SaveJob(job))
        return kept

    def set_target(self, event: Wished) -> None:
        """The target of its autoscaler; one beyond its bounds counts as the bound."""
        job = self._world.jobs.get(event.job_id)
        if job is None or job.state.is_final or job.spec.elastic is None or not sizes.by_members(job.spec):
            return
        elastic = job.spec.elastic
        members = max(elastic.least_members, min(event.members, elastic.most_members))
        if job.wished_members != members:
            job.wished_members = members
            self._say(SaveJob(job))
        self._world.target_reasons[job.job_id] = event.why

    # ---- it runs no longer, or again ----

    def undo(self, job: Job, now_ns: int) -> None:
        """It stops, whatever of the change has been done: until it has gone it counts with all that it may have."""
        if not job.resizing:
            return
        self._clear_shrinking(job)
        self._world.hold(job, ())
        if sizes.subtract_placement(job.spec, job.resizing, job.placement):
            job.placement = job.resizing
        spec = sizes.with_size(job.spec, sizes.has(job.spec, job.placement))
        job.attained += (now_ns - job.started_ns) * (job.width_milli - spec.width_milli)
        job.spec, job.resizing = spec, ()

    def forget_job(self, job: Job) -> None:
        """The job has no capacity any more."""
        self._clear_shrinking(job)
        job.resizing = ()
        self._world.elastic.pop(job.job_id, None)
        self._world.left_alone_ns.pop(job.job_id, None)

    def resend_commands(self, job: Job) -> None:
        """After a restart: unanswered commands are sent again, and targets still hold."""
        if job.wished_members:
            self._world.target_reasons[job.job_id] = reasons.explain_target(job)
        if job.resizing:
            self._note_shrinking(job)
            self._tell(job, "it was under way when the daemon was restarted")
