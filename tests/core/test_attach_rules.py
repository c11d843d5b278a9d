"""What the attach thread may answer without asking is what the core would answer, in any sequence of attaches.

`Thread` counts as shim/attach_server/rules.c does.
"""

from __future__ import annotations

import random
from dataclasses import replace

from vgpud.core.events import AdmitProcess, ProcessAttached, ProcessDisconnected
from vgpud.core.model import ANYONE, EVICTED, Container, Device, Process, Share, SiteLimits, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.slices import bounds
from vgpud.core.slices.attach_rules import Entry, attach_rules
from vgpud.core.slices.machine import step

GIB = 1 << 30


class Thread:
    """The native side: counts down what attach_rules() gave it."""

    def __init__(self, state: State) -> None:
        rules = attach_rules(state)
        self.entries = rules.entries
        self.tables = [list(table) for table in rules.tables]
        self.users = [list(user) for user in rules.users]

    def attach(self, entry: Entry) -> bool:
        for user, cost in entry.draws:
            table, free, small = self.users[user]
            large = max(0, cost - max(0, small))
            if self.tables[table][0] < cost or free < cost or (large and self.tables[table][1] < large):
                return False
        for user, cost in entry.draws:
            table, _, small = self.users[user]
            self.tables[table][1] -= max(0, cost - max(0, small))
            self.tables[table][0] -= cost
            self.users[user][1] -= cost
            self.users[user][2] -= cost
        return True


def node(rng: random.Random) -> State:
    """Three slices on two devices: one user's, every user's, and two containers'."""
    state = State(
        policy=SiteLimits(
            processes_per_slice_max=rng.randint(4, 40),
            processes_per_user_max=rng.randint(4, 60),
            processes_per_device_max=rng.randint(10, 70),
            attach_descriptors_max=rng.randint(30, 400),
        )
    )
    for index in range(2):
        uuid = f"GPU-{index}"
        state.devices[uuid] = Device(uuid, index, "d", "", 80 * GIB, 132, True, GIB, GIB)
    for serial, (name, owner, count) in enumerate((("own", 1000, 1), ("open", ANYONE, 2), ("inside", 0, 1)), 1):
        shares = tuple(Share(f"GPU-{i}", 100, 500, GIB, GIB) for i in range(count))
        state.slices[name] = Slice(User(name), name, serial, Spec(500), shares, owner, 0)
    for number in range(2):
        made = Container(f"{number}" * 64, "inside", False, 1, 1, f"/c/{number}", 0)
        state.containers[made.container_id] = made
    return state


def is_admitted(state: State, number: int, entry: Entry) -> bool:
    """Whether the core admits one more."""
    container_id = "" if entry.uid >= 0 else entry.account.removeprefix("container ")
    process = Process(
        number, entry.slice_name, number, max(entry.uid, 0), "p", 1, False, False, container_id, entry.account
    )
    return any(isinstance(command, AdmitProcess) for command in step(state, ProcessAttached(process), 1))


def test_any_sequence_of_attaches_is_admitted_as_the_core_would() -> None:
    refused = 0
    for seed in range(60):
        rng = random.Random(seed)
        state = node(rng)
        for number, uid in enumerate((1000, 1001, 1002, 1003)):  # accounts of a slice for all are known by a program
            is_admitted(state, number + 1, Entry("open", f"uid {uid}", uid, ()))
        thread = Thread(state)
        assert {e.account for e in thread.entries if e.slice_name == "inside"} >= {f"container {n * 64}" for n in "01"}
        favourites = rng.choices(thread.entries, k=3)
        for number in range(100, 260):
            entry = rng.choice(favourites if rng.random() < 0.6 else thread.entries)
            by_thread = thread.attach(entry)
            assert by_thread == is_admitted(state, number, entry), (seed, number, entry)
            refused += not by_thread
    assert refused > 1000, "the bounds were reached"


def test_new_rules_count_who_is_attached() -> None:
    state = node(random.Random(1))
    entry = attach_rules(state).entries[0]
    number = 1
    while is_admitted(state, number, entry):
        number += 1
    assert not Thread(state).attach(entry)


def test_slices_that_take_no_program_and_users_at_their_bounds_have_no_rule() -> None:
    state = node(random.Random(2))
    state.slices["own"] = replace(state.slices["own"], suspended=EVICTED)
    state.waiting.add("inside")
    is_admitted(state, 1, Entry("open", "uid 7", 7, ()))
    assert {(e.slice_name, e.account) for e in attach_rules(state).entries} == {("open", "uid 7")}
    state.policy = replace(state.policy, processes_per_user_max=1)
    assert not bounds.closed_fill(state, "uid 7", 0)
    assert bounds.closed_fill(state, "uid 7")
    step(state, ProcessDisconnected(1), 5)
    assert attach_rules(state).entries == []


def test_an_account_that_may_not_attach_has_no_rule() -> None:
    """A program of another user is there by a slice that had another owner, say: its further ones are the core's."""
    state = node(random.Random(3))
    state.processes[1] = Process(1, "own", 1, 1001, "p", 1, False, account="uid 1001")
    assert [e.account for e in attach_rules(state).entries if e.slice_name == "own"] == ["uid 1000"]
