"""Programs that bypass us are reported once, when that is certain, and again after they have been away."""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.devices.enforce import EXCESS, FREEZE, KILL, STRANGER, Act, freezer_of, why_spared
from vgpud.core.devices.strangers import (
    EXCESS_PATIENCE,
    GONE,
    PATIENCE,
    REPORTED_MAX,
    RETURN_MERCY,
    RETURN_PATIENCE,
    SLACK_BYTES,
    Findings,
    Running,
    Strangers,
    Watch,
    attached_by_pid,
)
from vgpud.core.model import Container, Process, Share, SiteLimits, Slice, Spec, State
from vgpud.core.observed import Credit, Seen
from vgpud.core.origins import User
from vgpud.daemon.device_reader import LOOK_EVERY, READ_S

GIB = 1 << 30


class Charged:
    """A ledger by device and pid, each pid's at the oldest of its lives."""

    def __init__(self, state: State, by_pid: Running) -> None:
        oldest = {pid: lives[0] for pid, lives in attached_by_pid(state.processes.values()).items()}
        self._bytes = {
            (oldest[pid], uuid): size for uuid, users in by_pid.items() for pid, size in users.items() if pid in oldest
        }

    def of_life(self, process_id: int, device_uuid: str) -> Credit:
        held = sum(b for (p, uuid), b in self._bytes.items() if (p.process_id, uuid) == (process_id, device_uuid))
        return Credit(held, held)

    def of_slice(self, slice_name: str, device_uuid: str) -> int:
        return sum(b for (p, uuid), b in self._bytes.items() if (p.slice_name, uuid) == (slice_name, device_uuid))


def look(watch: Watch, state: State, running: Running, ledger: Running, strangers: Strangers) -> Findings:
    attached = attached_by_pid(state.processes.values())
    return watch.look(state, running, attached, Charged(state, ledger), strangers)


def node() -> State:
    made = Slice(User("a"), "u", 1, Spec(500), (Share("GPU-0", 500, 500, GIB, GIB),), -1, 0)
    inside = Container("0123456789abcdef", "a", True, 100, 1, "/docker/x", 0, started=True)
    processes = {1: Process(1, "a", 100, 0, "p", 0, False)}
    return State(slices={"a": made}, processes=processes, containers={inside.container_id: inside})


def awake() -> Watch:
    """A watch that has looked before, when no process was there."""
    watch = Watch()
    look(watch, node(), {"GPU-0": {}}, {}, {})
    return watch


def log_kinds(watch: Watch, running: Running, times: int, ledger: Running | None = None) -> list[str]:
    return [entry.kind for _ in range(times) for entry in look(watch, node(), running, ledger or {}, {}).log]


def last(watch: Watch, state: State, running: Running, times: int, ledger: Running, strangers: Strangers) -> Findings:
    """What the last of so many readings shows."""
    return [look(watch, state, running, ledger, strangers) for _ in range(times)][-1]


def stranger(cgroups: tuple[str, ...]) -> tuple[str, str]:
    """(slice, message) of what is said about a stranger with these cgroup paths."""
    watch, seen = awake(), {200: Seen("thief", cgroups)}
    running = {"GPU-0": {200: GIB}}
    found = [e for _ in range(PATIENCE) for e in look(watch, node(), running, {}, seen).log]
    (entry,) = [e for e in found if e.kind == "device.stranger"]
    return entry.slice_name, entry.message


def test_our_programs_are_no_strangers() -> None:
    used = {"GPU-0": {100: GIB}}
    assert log_kinds(Watch(), used, 10, used) == []


def test_a_stranger_is_reported_once() -> None:
    """When it has come and when it has gone."""
    watch = awake()
    assert log_kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, PATIENCE - 1) == []
    assert log_kinds(watch, {"GPU-0": {100: 0, 200: GIB}}, 10) == ["device.stranger"]
    assert log_kinds(watch, {"GPU-0": {100: 0}}, 10) == ["stranger.gone"]
    assert log_kinds(watch, {"GPU-0": {200: 0}}, 10) == ["device.stranger"]


def test_how_soon_both_are_said() -> None:
    """As docs/security/hook-bypass.md promises: 2 s for a stranger, 3 s for memory; a look comes at most one period
    after either, and the first one when the daemon starts."""
    assert PATIENCE * LOOK_EVERY * READ_S <= 2 and (RETURN_PATIENCE - 1) * LOOK_EVERY * READ_S <= 2
    assert EXCESS_PATIENCE * LOOK_EVERY * READ_S <= 3


def test_one_that_was_there_before_the_daemon_may_come_back() -> None:
    """After a restart tenants are listed and not attached yet; one that does not come back is reported all the same."""
    watch = Watch()
    assert log_kinds(watch, {"GPU-0": {200: GIB}}, RETURN_PATIENCE - 1) == []
    assert log_kinds(watch, {"GPU-0": {200: GIB}}, 10) == ["device.stranger"]
    assert log_kinds(watch, {"GPU-0": {}}, 1) == ["stranger.gone"]
    assert log_kinds(watch, {"GPU-0": {200: GIB}}, PATIENCE) == ["device.stranger"], "another life of that pid"


def test_a_flood_of_strangers_is_reported_in_portions() -> None:
    """Those that are still there, each once; of those that have gone as many as fit into one look."""
    watch, many = awake(), {"GPU-0": {1000 + n: GIB for n in range(2 * REPORTED_MAX + 3)}}
    assert last(watch, node(), many, PATIENCE - 1, {}, {}).log == []
    logs = [look(watch, node(), many, {}, {}).log for _ in range(5)]
    assert [len(log) for log in logs] == [REPORTED_MAX, REPORTED_MAX, 3, 0, 0]
    assert len({entry.message for log in logs for entry in log}) == 2 * REPORTED_MAX + 3
    assert log_kinds(watch, {"GPU-0": {}}, 2) == [GONE] * REPORTED_MAX


def test_one_that_only_passes_by_is_not_reported() -> None:
    watch = awake()
    for _ in range(10):
        assert log_kinds(watch, {"GPU-0": {200: 0}}, PATIENCE - 1) == []
        assert log_kinds(watch, {"GPU-0": {}}, 1) == []


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
    no_strangers: Strangers = {}
    watch = awake()
    found = [e for _ in range(PATIENCE) for e in look(watch, node(), {"GPU-0": {200: GIB}}, {}, no_strangers).log]
    assert [entry.kind for entry in found] == ["device.stranger"]


def test_memory_past_the_ledger() -> None:
    ledger = {"GPU-0": {100: GIB // 2}}
    known = {"GPU-0": {100: GIB // 2 + SLACK_BYTES}}
    beyond = {"GPU-0": {100: GIB // 2 + SLACK_BYTES + 1}}
    over = {"GPU-0": {100: GIB + 1}}
    watch = Watch()
    assert log_kinds(watch, known, 10, ledger) == []
    assert log_kinds(watch, beyond, EXCESS_PATIENCE - 1, ledger) == [], "the least of the last readings counts"
    assert log_kinds(watch, beyond, 10, ledger) == ["memory.unattributed"]
    assert log_kinds(watch, over, 10, ledger) == ["memory.past_ledger"]
    assert log_kinds(watch, known, EXCESS_PATIENCE, ledger) == []
    assert log_kinds(watch, over, 10, ledger) == ["memory.unattributed", "memory.past_ledger"], (
        "again after it was gone"
    )


def test_a_limit_below_what_the_ledger_has_is_no_excess() -> None:
    """An admin has lowered it: the slice gets no more, and no process has done wrong."""
    used = {"GPU-0": {100: 3 * GIB}}
    assert log_kinds(Watch(), used, 10, used) == []


def test_a_lowered_limit_makes_no_overhead_an_offence() -> None:
    """The ledger is above it already; what is past the ledger is one by itself when it is more than the limit."""
    ledger = {"GPU-0": {100: 2 * GIB}}
    little, much = {"GPU-0": {100: 2 * GIB + GIB // 4}}, {"GPU-0": {100: 3 * GIB + 1}}
    assert log_kinds(Watch(), little, 10, ledger) == ["memory.unattributed"]
    assert last(Watch(), node_with_policy(on_excess="kill"), little, 10, ledger, {}).acts == []
    assert log_kinds(Watch(), much, 10, ledger) == ["memory.unattributed", "memory.past_ledger"]


def test_who_only_holds_a_slice_and_uses_a_device_is_a_stranger() -> None:
    """Nothing is charged to it, so to attach so would be a way out of the ledger."""
    holder = Process(2, "a", 200, 0, "vgpu run", 0, False, holder=True)
    state = replace(node(), processes={2: holder})
    found = [look(watch, state, {"GPU-0": {200: GIB}}, {}, {}) for watch in [awake()] for _ in range(PATIENCE)]
    assert [entry.kind for entry in found[-1].log] == ["device.stranger"]


def test_what_is_charged() -> None:
    """All that is beyond, of programs past their slack; a stranger in a container of the slice counts in full."""
    ledger, running = {"GPU-0": {100: GIB}}, {"GPU-0": {100: 2 * GIB, 200: 5}}
    assert last(awake(), node(), running, EXCESS_PATIENCE - 1, ledger, {}).charges == {}
    found = last(awake(), node(), running, EXCESS_PATIENCE, ledger, {200: Seen("thief", ("/docker/x",))})
    assert found.charges == {("a", "GPU-0"): GIB + 5} and found.process_charges == {("GPU-0", 1): GIB}
    assert last(awake(), node(), running, EXCESS_PATIENCE, ledger, {200: Seen("thief", ("/elsewhere",))}).charges == {
        ("a", "GPU-0"): GIB
    }


def test_memory_that_has_just_been_freed_is_not_charged() -> None:
    """The driver was read before, the ledger after it."""
    watch, running = awake(), {"GPU-0": {100: 2 * GIB}}
    last(watch, node(), running, EXCESS_PATIENCE - 1, {"GPU-0": {100: 2 * GIB}}, {})
    assert look(watch, node(), running, {"GPU-0": {100: 0}}, {}).charges == {}


def test_a_charge_follows_no_single_reading() -> None:
    """It rises to what so many readings in a row have shown at least, and falls to what they have shown at most."""
    watch, state = Watch(), node()

    def read_charge(*readings: int) -> int:
        for size in readings:
            found = look(watch, state, {"GPU-0": {100: size * GIB}}, {}, {})
        return found.charges.get(("a", "GPU-0"), 0) // GIB

    assert read_charge(2, 2, 0, 2, 2) == 0
    assert read_charge(3) == 2
    assert read_charge(0, 9, 0, 5, 1) == 2
    assert read_charge(1, 1) == 1
    assert read_charge(0, 0) == 1
    assert read_charge(0) == 0


class Churning(Charged):
    """The ledger of a program that has taken and freed `size` bytes between any two looks, and has nothing at them."""

    def __init__(self, size: int) -> None:
        super().__init__(State(), {})
        self._size, self._granted = size, 0

    def of_life(self, process_id: int, device_uuid: str) -> Credit:
        self._granted += self._size
        return Credit(0, self._granted)


def test_what_is_taken_and_freed_between_two_looks_is_in_the_ledger() -> None:
    """The driver is asked at any moment; but no ledger has let a process exceed its limit."""
    state = node()
    attached = attached_by_pid(state.processes.values())

    def read_charge(used: int, taken_bytes: int) -> int:
        watch, ledger = Watch(), Churning(taken_bytes)
        for _ in range(10):
            found = watch.look(state, {"GPU-0": {100: used}}, attached, ledger, {})
        return found.charges.get(("a", "GPU-0"), 0)

    assert read_charge(GIB // 2, GIB // 2) == 0
    assert read_charge(GIB, 20 * GIB) == 0
    assert read_charge(3 * GIB, 20 * GIB) == 2 * GIB
    assert read_charge(GIB, GIB // 2) == GIB // 2


def test_a_program_that_attaches_again_and_again_is_the_same_one() -> None:
    """It has a new life each time, and would have no past."""
    watch, state = Watch(), node_with_policy(on_excess="kill")
    for number in range(10):
        state.processes.clear()
        state.processes[number] = Process(number, "a", 100, 0, "p", 0, True)
        found = look(watch, state, {"GPU-0": {100: 2 * GIB}}, {}, {})
    assert (found.charges, found.process_charges) == ({("a", "GPU-0"): 2 * GIB}, {("GPU-0", 9): 2 * GIB})
    assert [act.pid for act in found.acts] == [100]


def test_credit_that_goes_to_and_fro_covers_a_slice_once() -> None:
    """Each of its programs may have had the limit at the moment at which the driver was asked, but not all of them."""
    state = node_with_policy(on_excess="kill")
    state.processes[2] = Process(2, "a", 101, 0, "p", 0, False)
    attached = attached_by_pid(state.processes.values())

    def read_findings(first: int, second: int) -> tuple[int, set[str], int]:
        watch, ledger, found_kinds = Watch(), Churning(20 * GIB), set()
        for _ in range(10):
            found = watch.look(state, {"GPU-0": {100: first, 101: second}}, attached, ledger, {})
            found_kinds |= {entry.kind for entry in found.log}
        return found.charges.get(("a", "GPU-0"), 0), found_kinds, len(found.acts)

    assert read_findings(GIB // 2, GIB // 2 + 2 * SLACK_BYTES) == (0, set(), 0)
    assert read_findings(GIB, GIB) == (GIB - SLACK_BYTES, {"memory.unattributed", "memory.past_ledger"}, 0)


def test_who_is_in_two_slices_is_above_the_limit_of_one_by_what_it_has_there() -> None:
    state = node_with_policy(on_excess="kill")
    state.slices["b"] = replace(state.slices["a"], origin=User("b"))
    state.processes[2] = Process(2, "b", 100, 0, "p", 0, False)
    held = {1: Credit(GIB // 2, GIB // 2), 2: Credit(GIB, GIB)}
    ledger = Charged(State(), {})
    ledger.of_life = lambda process_id, _uuid: held[process_id]  # type: ignore[method-assign]
    attached = attached_by_pid(state.processes.values())
    for past, killed in ((GIB // 4, 0), (GIB, 1)):
        watch, running = Watch(), {"GPU-0": {100: 3 * GIB // 2 + past}}
        found = [watch.look(state, running, attached, ledger, {}) for _ in range(EXCESS_PATIENCE)][-1]
        assert (found.charges, len(found.acts)) == ({("a", "GPU-0"): past}, killed)


def test_two_lives_of_one_process_are_counted_once() -> None:
    """dlmopen loads a second copy of the hook, which attaches by itself, to another slice even; the driver lists the
    process once."""
    for slice_name in ("a", "b"):
        state = node()
        second = Process(2, slice_name, 100, 0, "p", 0, False)
        state = State(slices=state.slices, processes={**state.processes, 2: second})
        assert last(Watch(), state, {"GPU-0": {100: GIB}}, 10, {}, {}).charges == {("a", "GPU-0"): GIB}


def test_what_was_charged_stays_while_the_driver_does_not_say() -> None:
    """That of a slice that has ended meanwhile does not."""
    watch, running = awake(), {"GPU-0": {100: GIB, 200: 5}}
    found = last(watch, node(), running, EXCESS_PATIENCE, {}, {200: Seen("thief", ("/docker/x",))})
    assert found.charges == {("a", "GPU-0"): GIB + 5}
    later = look(watch, node(), {}, {}, {})
    assert (later.charges, later.process_charges, later.log) == (found.charges, found.process_charges, [])
    assert look(watch, State(), {}, {}, {}).charges == {}


def test_who_has_the_pid_of_a_program_that_has_ended_is_a_stranger() -> None:
    """A child that holds its socket keeps the program in our list, and its ledger."""
    watch, state = awake(), node()
    attached = attached_by_pid(state.processes.values(), stale_process_ids={1})
    ledger = Charged(state, {"GPU-0": {100: GIB}})
    found = [watch.look(state, {"GPU-0": {100: GIB}}, attached, ledger, {}) for _ in range(PATIENCE)]
    assert [entry.kind for entry in found[-1].log] == ["device.stranger"]


def test_another_program_with_a_strangers_pid_is_another_stranger() -> None:
    watch, state, running = awake(), node_with_policy(on_stranger="kill"), {"GPU-0": {200: GIB}}

    def make_strangers(start_ticks: int) -> Strangers:
        return {200: Seen("thief", (), start_ticks=start_ticks)}

    last(watch, state, running, PATIENCE, {}, make_strangers(7))
    assert look(watch, state, running, {}, {}).acts, "one that cannot be seen any more is the same"
    found = look(watch, state, running, {}, make_strangers(8))
    assert [entry.kind for entry in found.log] == ["stranger.gone"] and not found.acts
    (act,) = last(watch, state, running, PATIENCE - 1, {}, make_strangers(8)).acts
    assert act.start_ticks == 8


def test_a_stranger_that_attaches_is_none_any_more() -> None:
    watch, running = awake(), {"GPU-0": {100: GIB}}
    last(watch, State(), running, PATIENCE, {}, {})
    (entry,) = look(watch, node(), running, {}, {}).log
    assert entry.kind == "stranger.gone" and "has attached" in entry.message


def test_a_stranger_in_a_container_can_put_its_slice_above_its_limit() -> None:
    watch, running = awake(), {"GPU-0": {100: GIB // 2, 200: GIB // 2 + 1}}
    found = last(watch, node(), running, PATIENCE, {"GPU-0": {100: GIB // 2}}, {200: Seen("thief", ("/docker/x",))})
    assert [entry.kind for entry in found.log] == ["device.stranger", "memory.unattributed", "memory.past_ledger"]


def node_with_policy(**policy: str) -> State:
    return replace(node(), policy=SiteLimits(**policy))  # type: ignore[arg-type]


def test_strangers_are_acted_upon_by_policy() -> None:
    running = {"GPU-0": {200: GIB}}
    assert last(awake(), node_with_policy(), running, 10, {}, {}).acts == [], "by default it is only said"
    watch, state = awake(), node_with_policy(on_stranger="kill", on_excess="freeze")
    assert last(watch, state, running, PATIENCE - 1, {}, {}).acts == []
    assert look(watch, state, running, {}, {}).acts == [Act(KILL, STRANGER, 200, "", "GPU-0", first=True)]
    assert look(watch, state, running, {}, {}).acts == [Act(KILL, STRANGER, 200, "", "GPU-0", first=False)]
    assert look(watch, state, {"GPU-0": {100: 0}}, {}, {}).acts == []


def test_one_that_was_there_before_the_daemon_has_longer() -> None:
    watch, state, running = Watch(), node_with_policy(on_stranger="kill"), {"GPU-0": {200: GIB}}
    assert last(watch, state, running, RETURN_MERCY - 1, {}, {}).acts == []
    assert look(watch, state, running, {}, {}).acts


def test_one_that_was_there_before_the_daemon_and_stands_still_could_not_come_back() -> None:
    """As in a paused container. One that has come later has no such excuse."""
    state, running = node_with_policy(on_stranger="kill"), {"GPU-0": {200: GIB}}
    stopped, runs = {200: Seen("p", (), is_stopped=True, start_ticks=7)}, {200: Seen("p", (), start_ticks=7)}
    watch = Watch()
    assert last(watch, state, running, 2 * RETURN_MERCY, {}, stopped).acts == []
    assert last(watch, state, running, RETURN_MERCY - 1, {}, runs).acts == []
    assert look(watch, state, running, {}, runs).acts
    assert last(awake(), state, running, PATIENCE, {}, stopped).acts


def test_a_reading_that_fails_tells_nothing() -> None:
    """Neither that no process was there before us, nor that one has gone."""
    state, running = node_with_policy(on_stranger="kill"), {"GPU-0": {200: GIB}}
    for fails_at in (0, 3):
        watch = Watch()
        last(watch, state, running, fails_at, {}, {}) if fails_at else None
        assert look(watch, state, {}, {}, {}).acts == []
        assert last(watch, state, running, RETURN_MERCY - fails_at - 1, {}, {}).acts == []
        assert look(watch, state, running, {}, {}).acts


def test_excess_is_acted_upon_where_the_slice_is_past_its_limit() -> None:
    """And only those of its programs that are past their own ledgers."""
    honest = Process(2, "a", 101, 0, "p", 0, False)
    state = node_with_policy(on_stranger="kill", on_excess="freeze")
    state.processes[2] = honest
    ledger = {"GPU-0": {100: 0, 101: GIB // 2}}
    below, over = {"GPU-0": {100: GIB // 2, 101: GIB // 2}}, {"GPU-0": {100: GIB, 101: GIB // 2}}
    assert last(Watch(), state, below, 10, ledger, {}).acts == []
    assert last(Watch(), state, over, EXCESS_PATIENCE, ledger, {}).acts == [
        Act(FREEZE, EXCESS, 100, "a", "GPU-0", first=True)
    ]


def test_who_is_attached_does_not_pay_for_a_stranger() -> None:
    """What the stranger has puts the slice above its limit, and the policy for strangers is another one."""
    state, seen = node_with_policy(on_excess="kill"), {200: Seen("thief", ("/docker/x",))}
    watch, running = awake(), {"GPU-0": {100: GIB // 2, 200: GIB}}
    found = [look(watch, state, running, {}, seen) for _ in range(10)]
    assert {entry.kind for one in found for entry in one.log} >= {"memory.past_ledger"} and found[-1].process_charges
    assert found[-1].acts == []
    assert last(watch, state, {"GPU-0": {100: GIB + 1, 200: GIB}}, EXCESS_PATIENCE, {}, seen).acts


CONTAINER = "0123456789abcdef" * 4


def test_who_is_spared() -> None:
    stranger, excess = Act(KILL, STRANGER, 1, "", "GPU-0", True), Act(KILL, EXCESS, 1, "a", "GPU-0", True)
    service = Seen("dcgm", ("/system.slice/dcgm.service",), uid=0)
    assert "root's own" in why_spared(stranger, service)
    assert why_spared(excess, service) == "", "it is attached: a tenant"
    assert why_spared(replace(stranger, slice_name="a"), service) == "", "in a container of ours, by whatever name"
    assert why_spared(stranger, replace(service, cgroups=(f"/docker/{CONTAINER}",))) == "", "root of a container"
    assert why_spared(stranger, replace(service, uid=1000)) == "", "cron's jobs are in its service's cgroup"
    stopped = Seen("p", (), uid=1000, is_stopped=True)
    assert "stopped" in why_spared(replace(stranger, verb=FREEZE), stopped)
    assert why_spared(stranger, stopped) == why_spared(excess, stopped) == "", "what it has, it has"
    assert why_spared(excess, Seen("?", ())) != "", "it has ended"


def test_what_may_be_frozen_by_its_cgroup() -> None:
    inside = f"/system.slice/docker-{CONTAINER}.scope"
    who = Seen("p", (inside,), uid=0)
    assert freezer_of(who, ("/system.slice/vgpud.service",), ("/user.slice",)) == inside
    assert freezer_of(replace(who, cgroups=("/user.slice/session-1.scope",)), (), ()) == ""
    assert freezer_of(who, (inside,), ()) == "", "we are in there"
    assert freezer_of(who, (), (inside + "/below",)) == "", "a tenant is in there"
