"""Containers in the core: which slice they get, when it goes, and which processes belong to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.test_machine import S, answer, command_types, create, denial, make_state, process
from vgpud.core import events as ev
from vgpud.core.model import Process, Quota, Reason, Slice, Spec, State
from vgpud.core.origins import Container, SlurmStep
from vgpud.core.slices import invariants
from vgpud.core.slices.containers import container_of, id_error
from vgpud.core.slices.machine import step

ID, OTHER = "a" * 64, "b" * 64


def asks(container_id: str = ID, milli: int = 500, **options: Any) -> ev.ContainerCreated:
    origin = Container(options.pop("name", f"c-{container_id[:12]}"))
    fields: dict[str, Any] = {"join": "", "origin": origin, "caller_uid": 0, "pid": 50, "pid_start": 5}
    spec = None if "join" in options else Spec(milli)
    return ev.ContainerCreated(container_id, spec, uid=f"u-{container_id}", wall_ns=1, **(fields | options))


def starts(container_id: str = ID, cgroup: str = "/docker/a", pid: int = 60) -> ev.ContainerStarted:
    return ev.ContainerStarted(container_id, pid, 6, cgroup)


def send(state: State, *events: ev.Event) -> list[ev.Command]:
    """Sends all of them and returns the last one's commands."""
    commands: list[ev.Command] = []
    for event in events:
        commands = step(state, event, 0)
        invariants.check(state)
    return commands


def container_process(number: int = 1, slice_name: str = "c-" + "a" * 12, uid: int = 12345) -> Process:
    """A program in container ID."""
    return replace(process(number, slice_name, uid=uid), container_id=ID)


def messages(commands: list[ev.Command], kind: str) -> list[str]:
    return [c.message for c in commands if isinstance(c, ev.Log) and c.kind == kind]


def test_a_container_gets_a_slice_of_its_own_in_one_transaction() -> None:
    state = make_state()
    commands = send(state, asks())
    assert [ev.SaveSlice, ev.SaveContainer] == [
        k for k in command_types(commands) if k in (ev.SaveSlice, ev.SaveContainer)
    ]
    made = answer(commands)
    assert isinstance(made, Slice)
    assert (made.name, made.owner_uid, made.origin.ephemeral) == ("c-" + "a" * 12, 0, True)
    assert "0.5" in messages(commands, "slice.created")[0]
    assert messages(commands, "container.created") == [f"container {'a' * 12} has slice {made.name}"]


@pytest.mark.parametrize("whose", ["team", "group"])
def test_a_queue_with_members_is_not_for_whatever_an_image_says(whose: str) -> None:
    """Its own members, or those of the queue above it."""
    state = make_state()
    group = Quota("group", members=("gid:100",) if whose == "group" else ())
    team = Quota("team", parent="group", members=("uid:1000",) if whose == "team" else ())
    send(state, ev.QuotasChanged((Quota("default"), group, team, Quota("open"))))
    assert "dev.vgpu/queue=team" in denial(send(state, asks(queue="team", open_queue=True)), Reason.DENIED)
    for number, (queue, by_image) in enumerate([("team", False), ("open", True), ("", False)]):
        made = answer(send(state, asks(f"{number}" * 64, milli=100, queue=queue, open_queue=by_image)))
        assert isinstance(made, Slice) and made.queue == (queue or "default")
    assert "nope" in denial(send(state, asks(queue="nope", open_queue=True)), Reason.NOT_FOUND)


def test_its_slice_does_not_end_while_it_lives() -> None:
    state = make_state(grace_ns=10 * S)
    send(state, asks(), starts(), ev.ProcessAttached(container_process()), ev.ProcessGone(1))
    step(state, ev.Tick(), 3600 * S)
    assert list(state.slices) == ["c-" + "a" * 12]


def test_its_slice_ends_with_it() -> None:
    state = make_state()
    send(state, asks(), starts(), ev.ProcessAttached(container_process()))
    commands = send(state, ev.ContainerEnded(ID, "ended"))
    assert {ev.ForgetContainer, ev.ForgetSlice, ev.DropProcess, ev.CloseSocket} <= set(command_types(commands))
    assert not state.slices and not state.containers and not state.processes
    assert send(state, ev.ContainerEnded(ID, "ended")) == [], "engines say so twice"


def test_an_id_that_comes_again_has_ended_before() -> None:
    """`docker restart`: the id is the same, and what it had is free for it again."""
    state = make_state()
    first = answer(send(state, asks(milli=1000), starts()))
    commands = send(state, asks(milli=1000))
    again = answer(commands)
    assert isinstance(first, Slice) and isinstance(again, Slice)
    assert again.serial > first.serial and again.uid == first.uid
    assert messages(commands, "container.ended") == [f"container {ID[:12]}: it is created again"]


def test_no_capacity_leaves_nothing_behind() -> None:
    state = make_state()
    send(state, asks(milli=700))
    before = state.copy()
    assert "0.3" in denial(send(state, asks(OTHER, 500)), Reason.NO_CAPACITY)
    assert state == before


def test_two_containers_with_one_name() -> None:
    state = make_state()
    send(state, asks(name="train", milli=100))
    text = denial(send(state, asks(OTHER, 100, name="train")), Reason.EXISTS)
    assert ID[:12] in text and "VGPU_SLICE=train" in text and "VGPU_NAME" in text
    send(state, create("plain", 100))
    assert "exists already" in denial(send(state, asks(OTHER, 100, name="plain")), Reason.EXISTS)


def test_joining_a_slice() -> None:
    state = make_state()
    send(state, create("shared"), asks(join="shared"), asks(OTHER, join="shared"))
    assert len(state.containers_of("shared")) == 2
    send(state, ev.ContainerEnded(ID, "ended"), ev.ContainerEnded(OTHER, "ended"))
    assert list(state.slices) == ["shared"], "an administrator's slice stays"


@pytest.mark.parametrize(
    ("owner", "caller", "may"), [(1000, 1000, True), (1000, 0, True), (-1, 7, True), (1000, 7, False)]
)
def test_who_may_join(owner: int, caller: int, may: bool) -> None:
    state = make_state()
    send(state, create("shared", owner_uid=owner))
    result = answer(send(state, asks(join="shared", caller_uid=caller)))
    assert isinstance(result, Slice) == may
    if not may:
        assert "uid 1000" in denial(send(state, asks(join="shared", caller_uid=caller)), Reason.DENIED)


def test_joining_what_is_not_there_or_waits() -> None:
    state = make_state(2)
    assert "'x'" in denial(send(state, asks(join="x")), Reason.NOT_FOUND)
    send(state, create("shared"))
    stored = tuple(state.slices.values())
    alone = State()
    send(alone, ev.Started(state.policy, (), stored, ()))
    assert "is waiting for its device" in denial(send(alone, asks(join="shared")), Reason.PRECONDITION)


def test_a_slice_that_another_container_has_joined_outlives_its_own() -> None:
    state = make_state()
    send(state, asks(name="train"), asks(OTHER, join="train"), ev.ContainerEnded(ID, "ended"))
    assert list(state.slices) == ["train"]
    send(state, ev.ContainerEnded(OTHER, "ended"))
    assert not state.slices


def test_an_ephemeral_slice_is_kept_by_a_container_that_joined() -> None:
    state = make_state()
    send(state, create("run", ephemeral=True), ev.ProcessAttached(process(1, "run")), asks(join="run"))
    send(state, ev.ProcessGone(1))
    assert list(state.slices) == ["run"]
    send(state, ev.ContainerEnded(ID, "ended"))
    assert not state.slices


def test_removing_a_containers_slice_needs_force() -> None:
    state = make_state()
    send(state, asks(name="train"), starts())
    assert ID[:12] in denial(send(state, ev.DeleteSlice("", "train", False)), Reason.PRECONDITION)
    commands = send(state, ev.DeleteSlice("", "train", True))
    assert messages(commands, "container.warning") == [f"container {ID[:12]} has lost its slice: removed"]
    assert not state.containers and ev.ForgetContainer in command_types(commands)


def test_a_containers_slice_is_resized_where_it_is() -> None:
    """Its device nodes and NVIDIA_VISIBLE_DEVICES are fixed, so it cannot move, attached or not."""
    state = make_state(2)
    send(state, create("big", 600), asks(milli=300, name="train"))
    home = state.slices["train"].shares[0].device_uuid
    assert "cannot move" in denial(
        send(state, ev.UpdateSlice("", "train", Spec(1500), ("gpus_milli",))), Reason.PRECONDITION
    )
    for milli in (350, 200):
        resized = answer(send(state, ev.UpdateSlice("", "train", Spec(milli), ("gpus_milli",))))
        assert isinstance(resized, Slice) and resized.shares[0].device_uuid == home
    send(state, create("rest", 100, spare_name="x"))
    denial(send(state, ev.UpdateSlice("", "train", Spec(950), ("gpus_milli",))), Reason.NO_CAPACITY)


def test_inside_the_cgroup_decides() -> None:
    state = make_state()
    send(state, asks(name="train"), starts(cgroup="/docker/a"), create("other", 100, owner_uid=-1))
    assert ev.AdmitProcess in command_types(send(state, ev.ProcessAttached(container_process(1, "train")))), (
        "any uid of the container"
    )
    text = denial(send(state, ev.ProcessAttached(container_process(2, "other", uid=0))), Reason.DENIED)
    assert "cannot use slice other" in text, "not even root, and though anyone outside may"
    outside = process(3, "train", uid=12345)
    assert "belongs to uid 0" in denial(send(state, ev.ProcessAttached(outside)), Reason.DENIED)


def test_whose_a_cgroup_is() -> None:
    state = make_state()
    send(state, asks(milli=100), asks(OTHER, 100), starts(cgroup="/docker/a"), starts(OTHER, "/docker/a/docker/b"))
    found = {
        paths: container_of(state, (paths,)) for paths in ("/docker/a", "/docker/a/x", "/docker/ab", "/docker", "/")
    }
    assert {path: bool(c) for path, c in found.items()} == {
        "/docker/a": True,
        "/docker/a/x": True,
        "/docker/ab": False,
        "/docker": False,
        "/": False,
    }
    innermost = container_of(state, ("/docker/a/docker/b/init",))
    assert innermost and innermost.container_id == OTHER, "a container within a container"
    several = container_of(state, ("/elsewhere", "/docker/a"))
    assert several and several.container_id == ID, "one hierarchy of several"
    moved = container_of(state, ("/docker/a", "/docker/a/docker/b"))
    assert moved and moved.container_id == ID, "another's path in a further hierarchy"


def test_a_container_that_has_not_started_owns_no_cgroup() -> None:
    state = make_state()
    send(state, asks())
    assert container_of(state, ("", "/", "/docker/a")) is None


def test_no_cgroup_of_its_own_is_a_warning() -> None:
    state = make_state()
    send(state, asks(milli=100), starts(cgroup="/shared"), asks(OTHER, 100))
    commands = send(state, asks(OTHER, 100), starts(OTHER, cgroup=""))
    assert "known by their uid" in messages(commands, "container.warning")[0]
    assert (state.containers[OTHER].started, state.containers[OTHER].cgroup) == (True, "")


def test_two_containers_in_one_cgroup_are_one_to_the_kernel() -> None:
    """With two slices the second one's programs would be taken for the first one's; with one they may be."""
    state = make_state()
    send(state, asks(), starts(), asks(OTHER, 250))
    refused = denial(send(state, starts(OTHER)), Reason.PRECONDITION)
    assert f"container {'a' * 12} has the cgroup /docker/a as well" in refused
    assert not state.containers[OTHER].started
    send(state, ev.ContainerEnded(OTHER, "it was refused"), asks(OTHER, join="c-" + "a" * 12))
    assert isinstance(answer(send(state, starts(OTHER))), Slice)
    assert container_of(state, ["/docker/a"]) is state.containers[ID]


def test_starting_what_is_not_known() -> None:
    assert ID[:12] in denial(send(make_state(), starts()), Reason.NOT_FOUND)


def test_starting_twice_says_so_once() -> None:
    state = make_state()
    assert messages(send(state, asks(), starts()), "container.started")
    assert command_types(send(state, starts())) == [ev.Answer]


def test_a_restart_keeps_containers_and_their_slices() -> None:
    state = make_state(grace_ns=10 * S)
    send(state, asks(name="train"), starts(), create("run", 100, ephemeral=True))
    back = State()
    again = ev.Started(
        state.policy, tuple(state.devices.values()), tuple(state.slices.values()), (), tuple(state.containers.values())
    )
    send(back, again)
    assert back.containers == state.containers
    step(back, ev.Tick(), 3600 * S)
    assert list(back.slices) == ["train"], "no grace for a container's slice"


def test_a_stored_container_without_its_slice_is_forgotten() -> None:
    state = make_state()
    send(state, asks())
    again = ev.Started(state.policy, tuple(state.devices.values()), (), (), tuple(state.containers.values()))
    assert ev.ForgetContainer(ID) in send(State(), again)


def test_containers_are_bounded() -> None:
    state = make_state(containers_max=1)
    send(state, create("shared"), asks(join="shared"))
    assert "1 containers" in denial(send(state, asks(OTHER, join="shared")), Reason.NO_CAPACITY)


def test_steps_of_one_user_leave_places_for_others() -> None:
    """A batch script starts as many as it likes; they join its slice, and each is a container."""
    state = make_state(containers_max=8)
    send(state, asks("slurm-1.batch", origin=SlurmStep(1, "batch"), owner_uid=1000))
    for number in range(8):
        step = SlurmStep(1, str(number))
        commands = send(state, asks(f"slurm-1.{number}", origin=step, join="slurm-1.batch", owner_uid=1000))
    assert "uid 1000 has 4 steps and containers" in denial(commands, Reason.NO_CAPACITY)
    assert len(state.containers) == 4
    other = asks("slurm-2.0", milli=100, origin=SlurmStep(2, "0"), owner_uid=1001)
    assert isinstance(answer(send(state, other)), Slice)
    assert isinstance(answer(send(state, asks(milli=100))), Slice)


def test_a_slurm_jobs_slice_gets_no_more_than_slurm_counts() -> None:
    """Its owner may resize it: Slurm gives the rest of the device, and the other devices, to other jobs."""
    state = make_state(2)
    send(state, asks("slurm-1.0", origin=SlurmStep(1, "0"), owner_uid=1000))
    send(state, replace(create(origin=SlurmStep(2, "")), spec=Spec(500, device_uuids=("1",))))
    before = dict(state.slices)
    for name, patch, fields in (
        ("slurm-1.0", Spec(900), ("gpus_milli",)),
        ("slurm-1.0", Spec(500, mem_min_bytes=60 << 30, mem_max_bytes=60 << 30), ("mem_max_bytes", "mem_min_bytes")),
        ("slurm-2", Spec(500, device_uuids=("0",)), ("device_uuids",)),
    ):
        commands = send(state, ev.UpdateSlice("", name, patch, fields, asker_uid=1000))
        assert "ask Slurm for more" in denial(commands, Reason.PRECONDITION)
        assert state.slices == before
    made = answer(send(state, ev.UpdateSlice("", "slurm-2", Spec(500, max_milli=1000), ("max_milli",), asker_uid=1000)))
    assert isinstance(made, Slice) and made.shares[0].max_milli == 1000


def test_ids_become_file_names() -> None:
    for wrong in ("", "..", ".hidden", "a/b", "a b", "a\nb", "x" * 257, "-rm", "é"):
        assert id_error(wrong), wrong
        assert "id" in denial(send(make_state(), asks(wrong, name="n")), Reason.INVALID)
    for good in (ID, "my_test-1.2", "k8s+x"):
        assert id_error(good) is None


# ---- one-time CDI devices ----


def device(name: str = "alloc-1", milli: int = 350) -> ev.CreateSlice:
    return create(name, milli, cdi_device=True)


def test_a_one_time_device_is_reserved_at_once_and_ends_unused() -> None:
    state = make_state(grace_ns=10 * S)
    commands = send(state, device())
    assert ev.OpenDevice("alloc-1") in commands
    assert state.reserved("GPU-0")[0] == 350
    assert ev.CloseDevice("alloc-1") in step(state, ev.Tick(), 10 * S)
    assert not state.slices


def test_a_one_time_device_is_for_one_container() -> None:
    state = make_state(grace_ns=10 * S)
    send(state, device(), asks(join="alloc-1"))
    text = denial(send(state, asks(OTHER, join="alloc-1")), Reason.PRECONDITION)
    assert "vgpu.dev/gpu=alloc-1" in text and "vgpu alloc" in text
    step(state, ev.Tick(), 3600 * S)
    assert list(state.slices) == ["alloc-1"], "used in time"
    assert ev.CloseDevice("alloc-1") in send(state, ev.ContainerEnded(ID, "ended"))
    assert not state.slices


def test_a_used_device_stays_used_over_a_restart() -> None:
    state = make_state()
    send(state, device(), asks(join="alloc-1"))
    back = State()
    stored = (tuple(state.slices.values()), (), tuple(state.containers.values()))
    commands = send(back, ev.Started(state.policy, tuple(state.devices.values()), *stored))
    assert ev.OpenDevice("alloc-1") in commands, "its file is written anew"
    denial(send(back, asks(OTHER, join="alloc-1")), Reason.PRECONDITION)


def test_a_device_follows_its_slice() -> None:
    state = make_state(2)
    send(state, device("a", 500), create("b", 400))
    commands = send(state, ev.UpdateSlice("", "a", Spec(900), ("gpus_milli",)))
    assert state.slices["a"].shares[0].device_uuid == "GPU-1"
    assert ev.OpenDevice("a") in commands


def test_a_device_name_is_no_size() -> None:
    for name in ("1", "0.5", "2.25"):
        assert "size" in denial(send(make_state(), device(name)), Reason.INVALID)
        assert isinstance(answer(send(make_state(), create(name))), Slice), "a plain slice may be called so"
