"""Programs past us are reported once, when they are sure, and again after they have been away."""

from __future__ import annotations

from vgpud.core.model import Container, Process, Share, Slice, Spec, State
from vgpud.core.observed import Seen
from vgpud.core.watch import EXCESS_PATIENCE, PATIENCE, RETURN_PATIENCE, SLACK_BYTES, Running, Strangers, Watch
from vgpud.daemon import READ_S

GIB = 1 << 30


def node() -> State:
    made = Slice("a", "u", 1, Spec(500), (Share("GPU-0", 500, 500, GIB, GIB),), False, -1, 0)
    inside = Container("0123456789abcdef", "a", True, 100, 1, "/docker/x", 0, started=True)
    processes = {1: Process(1, "a", 100, 0, "p", 0, False)}
    return State(slices={"a": made}, processes=processes, containers={inside.container_id: inside})


def awake() -> Watch:
    """A watch that has looked before, when nobody was there."""
    watch = Watch()
    watch.look(node(), {"GPU-0": {}}, {})
    return watch


def kinds(watch: Watch, running: Running, times: int) -> list[str]:
    return [entry.kind for _ in range(times) for entry in watch.look(node(), running, {})]


def stranger(cgroups: tuple[str, ...]) -> tuple[str, str]:
    """(slice, message) of what is said about a stranger with these cgroup paths."""
    watch, seen = awake(), {200: Seen("thief", cgroups)}
    found = [entry for _ in range(PATIENCE) for entry in watch.look(node(), {"GPU-0": {200: GIB}}, seen)]
    (entry,) = found
    return entry.slice_name, entry.message


def test_our_programs_are_no_strangers() -> None:
    assert kinds(Watch(), {"GPU-0": {100: GIB}}, 10) == []


def test_a_stranger_is_reported_once() -> None:
    watch = awake()
    assert kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, PATIENCE - 1) == []
    assert kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, 10) == ["device.stranger"]
    assert kinds(watch, {"GPU-0": {100: 0}}, 1) == []
    assert kinds(watch, {"GPU-0": {200: 0}}, 10) == ["device.stranger"]


def test_both_are_said_within_two_seconds() -> None:
    """As SECURITY.md promises: a reading comes at most READ_S after the stranger."""
    assert max(PATIENCE, RETURN_PATIENCE) * READ_S <= 2


def test_one_that_was_there_before_the_daemon_may_come_back() -> None:
    """After a restart tenants are listed and not attached yet; who does not come back is reported all the same."""
    watch = Watch()
    assert kinds(watch, {"GPU-0": {200: GIB}}, RETURN_PATIENCE - 1) == []
    assert kinds(watch, {"GPU-0": {200: GIB}}, 10) == ["device.stranger"]
    assert kinds(watch, {"GPU-0": {}}, 1) == []
    assert kinds(watch, {"GPU-0": {200: GIB}}, PATIENCE) == ["device.stranger"], "another life of that pid"


def test_one_that_only_passes_by_is_not_reported() -> None:
    watch = awake()
    for _ in range(10):
        assert kinds(watch, {"GPU-0": {200: 0}}, PATIENCE - 1) == []
        assert kinds(watch, {"GPU-0": {}}, 1) == []


def test_a_stranger_is_named_with_its_container() -> None:
    assert stranger(()) == ("", "pid 200 (thief) uses 1GiB and is attached to no slice")
    known = stranger(("/elsewhere", "/docker/x/below"))
    assert known == ("a", "pid 200 (thief) in container 0123456789ab uses 1GiB and is attached to no slice")


def test_a_container_that_is_none_of_ours_is_named_by_its_cgroup() -> None:
    container_id = "fedcba9876543210" * 4
    for path in (f"/docker/{container_id}", f"/system.slice/docker-{container_id}.scope/init", f"/a:b:{container_id}"):
        assert "in container fedcba987654 uses" in stranger((path,))[1]
    for path in (f"/docker/{container_id}0", "/user.slice/session-1.scope"):
        assert "container" not in stranger((path,))[1]


def test_one_that_ends_while_it_is_looked_up() -> None:
    nobody: Strangers = {}
    watch = awake()
    found = [entry for _ in range(PATIENCE) for entry in watch.look(node(), {"GPU-0": {200: GIB}}, nobody)]
    assert [entry.kind for entry in found] == ["device.stranger"]


def test_memory_past_the_ledger() -> None:
    watch = Watch()
    over = {"GPU-0": {100: GIB + SLACK_BYTES + 1}}
    assert kinds(watch, {"GPU-0": {100: GIB + SLACK_BYTES}}, 10) == []
    assert kinds(watch, over, EXCESS_PATIENCE - 1) == []
    assert kinds(watch, over, 10) == ["memory.past_ledger"]
    assert kinds(Watch(), {"GPU-1": {100: 2 * SLACK_BYTES}}, 10) == ["memory.past_ledger"], "a device it does not have"


def test_two_lives_of_one_process_are_counted_once() -> None:
    """dlmopen loads a second copy of the hook, which attaches by itself; the driver lists the process once."""
    state = node()
    second = Process(2, "a", 100, 0, "p", 0, False)
    state = State(slices=state.slices, processes={**state.processes, 2: second})
    watch = Watch()
    assert [e for _ in range(10) for e in watch.look(state, {"GPU-0": {100: GIB}}, {})] == []
