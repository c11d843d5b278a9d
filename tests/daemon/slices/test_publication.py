"""What the daemon keeps of what a driver of Kubernetes publishes: the last report, for a while, within a bound."""

from __future__ import annotations

from vgpud.core.model import PUBLISHED_MAX
from vgpud.daemon.slices.publication import HIDDEN, NEVER, SILENT, SILENT_S, PublicationKeeper
from vgpud.v1alpha1 import vgpud_pb2 as pb


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def keeper(clock: Clock | None = None) -> PublicationKeeper:
    return PublicationKeeper("n1", clock or Clock())


def test_nothing_was_said_yet() -> None:
    view = keeper().view(with_reasons=True)
    assert (view.node, view.problem, view.HasField("report_time")) == ("n1", NEVER, False)


def test_the_last_report_counts_and_has_a_time_and_the_nodes_name() -> None:
    kept = keeper()
    assert kept.put(pb.Publication(node="elsewhere", pool="p", generation=1)) is None
    assert kept.put(pb.Publication(pool="p", generation=2, devices=[pb.PublishedDevice(name="gpu-0")])) is None
    view = kept.view(with_reasons=True)
    assert (view.node, view.generation, view.problem, len(view.devices)) == ("n1", 2, "", 1)
    assert view.report_time.seconds > 0
    view.generation = 9
    assert kept.view(with_reasons=True).generation == 2, "a view is a copy"


def test_a_driver_that_is_silent_is_said_to_be() -> None:
    clock = Clock()
    kept = keeper(clock)
    kept.put(pb.Publication(pool="p", generation=1))
    clock.now_s += SILENT_S
    assert kept.view(with_reasons=True).problem == ""
    clock.now_s += 1
    view = kept.view(with_reasons=True)
    assert view.problem == SILENT and view.generation == 1, "it was published, and may be still"
    kept.put(pb.Publication(pool="p", generation=1))
    assert kept.view(with_reasons=True).problem == ""


def test_what_a_driver_cannot_do_is_for_admins() -> None:
    clock = Clock()
    kept = keeper(clock)
    kept.put(pb.Publication(problem="https://10.0.0.1:6443 refuses"))
    assert "10.0.0.1" in kept.view(with_reasons=True).problem
    assert kept.view(with_reasons=False).problem == HIDDEN
    clock.now_s += SILENT_S + 1
    assert kept.view(with_reasons=False).problem == f"{SILENT} ({HIDDEN})"


def test_there_is_a_bound_and_a_report_beyond_it_changes_nothing() -> None:
    kept = keeper()
    kept.put(pb.Publication(generation=1))
    devices = [pb.PublishedDevice()] * (PUBLISHED_MAX + 1)
    refusal = kept.put(pb.Publication(generation=2, devices=devices))
    assert refusal and str(PUBLISHED_MAX) in refusal.message
    assert kept.view(with_reasons=True).generation == 1
