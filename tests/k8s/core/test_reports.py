"""Events of Kubernetes: what is said of claims and their pods, in bounded lines, and no more often than is read."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.core.world import SECOND_NS, World
from tests.k8s.parts import allocated
from vgpud.k8s.core import events as ev
from vgpud.k8s.core import published, reports
from vgpud.k8s.core.machine import Policy
from vgpud.k8s.core.model import Ref

POD = "pod-1"
HALF = {"sm": "500", "memory": "1Gi"}


def ready(gpus: int = 1) -> World:
    world = World(gpus)
    assert world.run()
    return world


def half(world: World, pods: tuple[str, ...] = (POD,)) -> Ref:
    return world.add(allocated("half", ("gpu-0", HALF), pods=pods))


def take_reports(world: World) -> list[tuple[str, str, bool]]:
    made, world.reports = [(one.kind, one.reason, one.is_warning) for one in world.reports], []
    return made


def test_a_prepared_claim_and_its_pod_say_what_they_have() -> None:
    world = ready()
    ref = half(world)
    world.prepare(ref)
    claim, pod = world.reports
    assert (claim.kind, claim.subject, claim.reason, claim.is_warning) == ("ResourceClaim", ref, "Prepared", False)
    assert (pod.kind, pod.subject) == ("Pod", Ref(POD, "team", "p"))
    assert pod.note == f"slice k-{ref.uid} has gpu-0: 0.5 of the SM time, 1GiB of memory"


def test_what_the_status_says_already_is_not_reported_again() -> None:
    world = ready()
    ref = half(world)
    world.prepare(ref)
    take_reports(world)
    world.start()  # a driver without a past
    world.run()
    world.prepare(ref)
    world.tick(601)
    assert world.run() and not world.reports


def test_a_resized_slice_is_reported_with_its_numbers() -> None:
    world = ready()
    ref = half(world)
    world.prepare(ref)
    world.post(world.node_seen())
    take_reports(world)
    world.resized_shares[ref.uid] = tuple(
        replace(one, max_milli=1000) for one in world.slices[ref.uid].requested_claim.granted
    )
    world.post(world.node_seen())
    world.run()
    assert "gpu-0: 0.5 to 1 of the SM time" in world.reports[0].note
    assert take_reports(world) == [("ResourceClaim", "Resized", False), ("Pod", "Resized", False)]


def test_a_claim_that_cannot_be_prepared_says_why_once_for_many_tries() -> None:
    world = ready()
    ref = world.add(allocated("half", ("gpu-9", HALF), pods=(POD,)))
    for _ in range(20):
        assert "gpu-9" in world.prepare(ref).error
        world.tick(2)
    assert "has device gpu-9, which this node does not have" in world.reports[0].note
    assert take_reports(world) == [("ResourceClaim", "PrepareFailed", True)]
    world.tick(600)
    world.prepare(ref)
    assert take_reports(world) == [("ResourceClaim", "PrepareFailed", True)]


def test_vgpuds_refusal_is_reported() -> None:
    world = ready()
    world.prepare(half(world))
    take_reports(world)
    world.prepare(world.add(allocated("more", ("gpu-0", {"sm": "600", "memory": "1Gi"}), pods=(POD,))))
    (report,) = world.reports
    assert report.subject.name == "more" and "is full" in report.note


def test_a_device_that_fails_or_is_drained_is_reported_to_those_that_have_it() -> None:
    world = ready(2)
    world.prepare(half(world))
    world.post(world.node_seen())
    take_reports(world)
    for state, reason, is_warning in (
        ({"drained": "a fan"}, "DeviceDrained", False),
        ({"fault": "Xid 79"}, "DeviceFaulty", True),
    ):
        world.gpus = (replace(world.gpus[0], **state), *world.gpus[1:])
        world.post(world.node_seen())
        world.run()
        assert next(iter(state.values())) in world.reports[0].note
        assert take_reports(world) == [("ResourceClaim", reason, is_warning), ("Pod", reason, is_warning)]
    world.gpus = (world.gpus[0], replace(world.gpus[1], fault="Xid 48"))
    world.post(world.node_seen())
    assert world.run() and not world.reports, "no claim has that one"
    assert not world.state.remarks


def test_a_monitor_is_reported() -> None:
    world = ready()
    world.policy = Policy(published.Policy(monitors=True))
    world.start()
    assert world.run()
    world.reports.clear()
    world.prepare(world.add(allocated("monitor", ("gpu-0", {}), pods=(POD,), adminAccess=True)))
    assert take_reports(world) == [("ResourceClaim", "Prepared", False), ("Pod", "Prepared", False)]


def test_a_claim_of_many_pods_reports_to_some() -> None:
    world = ready()
    world.prepare(half(world, tuple(f"pod-{n}" for n in range(100))))
    assert len(world.reports) == 1 + reports.PODS_MAX


@given(st.text(max_size=3000))
def test_a_note_is_one_line_of_bounded_length(text: str) -> None:
    note = reports.printable_line(text)
    assert len(note.encode()) <= reports.NOTE_BYTES_MAX and note.isprintable()


def count_reports(report_log: reports.ReportLog, numbers: range, now_s: float, namespaces: int = 1) -> int:
    """How many of these events are said, of namespaces in turn."""
    made = [ev.Report("Pod", Ref(f"u{n}", f"team-{n % namespaces}", "p"), "Prepared", "x") for n in numbers]
    return len(list(reports.limit_reports(report_log, [*made, ev.Log("x")], int(now_s * SECOND_NS)))) - 1


def test_a_node_says_no_more_than_its_share() -> None:
    known = reports.ReportLog()
    assert count_reports(known, range(1000), 1000, 4) == reports.BURST
    assert count_reports(known, range(1000, 2000), 1001, 4) == 0
    assert count_reports(known, range(2000, 3000), 1010, 4) == 5, "one every two seconds"
    assert count_reports(known, range(4000, 6000), 9000, 4) == reports.BURST
    for n in range(100):
        count_reports(known, range(10_000 + 1000 * n, 10_000 + 1000 * n + 100), 10_000 + 200 * n, 4)
    assert len(known.until_ns) <= reports.KNOWN_MAX
    count_reports(known, range(5000), 90_000, 5000)
    assert len(known.namespaces) <= reports.KNOWN_MAX


def test_events_of_one_namespace_leave_the_others_theirs() -> None:
    """Its claims, made and deleted in a loop, used up the events of a node."""
    known = reports.ReportLog()
    assert count_reports(known, range(1000), 1000) == reports.NAMESPACE_BURST
    other = [ev.Report("Pod", Ref(f"v{n}", "quiet", "p"), "Prepared", "x") for n in range(20)]
    assert len(list(reports.limit_reports(known, other, 1000 * SECOND_NS))) == 20
    assert count_reports(known, range(1000, 2000), 1012) == 3, "one every four seconds"
