"""The Python client, sync and async, against a real daemon: values without protobuf, errors with their reason."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import pytest
from google.protobuf.message import Message

from tests.daemon.node import Node, wait_until
from vgpud.client import (
    AsyncClient,
    Client,
    ClientError,
    JobSpec,
    NoCapacityError,
    NotFoundError,
    Queue,
    Reservation,
    SizeError,
    SliceSpec,
    UnreachableError,
    calls,
    held_slice,
    messages,
    model,
    size,
)
from vgpud.client.logs import read_log
from vgpud.errors import ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.fixture
def client(empty_node: Node) -> Iterator[Client]:
    with Client(f"unix://{empty_node.runtime / 'vgpud.sock'}") as made:
        yield made


def held() -> JobSpec:
    command = ("python", "train.py")
    return JobSpec(slice=SliceSpec(gpus_milli=100), command=command, directory="/", hold=True, environment={"A": "b"})


def test_slices(client: Client) -> None:
    made = client.create_slice("a", SliceSpec(gpus_milli=250, max_milli=500), every_user=True)
    assert isinstance(made, model.Slice)
    (share,) = made.devices
    assert (share.min_milli, share.max_milli, made.owner_uid, made.claim) == (250, 500, None, None)
    assert made.spec == SliceSpec(gpus_milli=250, max_milli=500, service_class="batch")
    assert made.create_time is not None
    assert abs(datetime.now(timezone.utc) - made.create_time) < timedelta(minutes=5)
    assert [one.name for one in client.slices()] == ["a"]
    changed = client.update_slice("a", SliceSpec(weight=7))
    assert changed.spec == SliceSpec(gpus_milli=250, max_milli=500, weight=7, service_class="batch")
    assert changed.revision > made.revision
    assert client.get_slice("a").devices[0].max_milli == 500
    assert client.update_slice("a", SliceSpec(), ["max_milli"]).devices[0].max_milli == 250
    shot = next(client.watch_slices())
    assert ([one.name for one in shot.slices], [one.index for one in shot.devices]) == (["a"], [0])
    assert client.processes("a") == []
    client.delete_slice("a")
    assert [event.kind for event in client.events() if event.slice == "a"][-1] == "slice.deleted"
    with pytest.raises(AttributeError):
        made.name = "b"  # type: ignore[misc]


def test_jobs_and_queues(client: Client) -> None:
    (number,) = client.submit(held())
    job = client.job(number)
    assert (job.state, job.spec and job.spec.command, job.end_time) == ("held", ("python", "train.py"), None)
    assert job.spec and job.spec.environment["A"] == "b"
    assert number in [one.job_id for one in client.jobs()]
    assert next(client.watch_jobs([number])).job_id == number
    assert all(isinstance(fact, model.Fact) and fact.text for fact in client.explain(number))
    client.cancel(number)
    assert client.job(number).state == "cancelled"
    assert number not in [one.job_id for one in client.jobs()]
    assert number in [one.job_id for one in client.jobs(include_ended=True)]
    made = client.set_queue(Queue(name="team", weight=3, min_run=timedelta(seconds=90)))
    assert (made.weight, made.min_run) == (3, timedelta(seconds=90))
    client.delete_queue("team")
    assert "team" not in [queue.name for queue in client.queues()]
    assert isinstance(client.usage(since=datetime.now(timezone.utc) - timedelta(days=1), by="user"), list)


def test_a_slice_for_a_while(client: Client) -> None:
    with client.slice(0.5, max=1, mem="1G") as part:
        assert part.name in [one.name for one in client.slices()]
        made = part.get()
        assert made.ephemeral and made.spec == size(0.5, max=1, mem="1G", service_class="batch")
        changed = part.resize(0.25)
        assert [(one.min_milli, one.max_milli) for one in changed.devices] == [(250, 1000)]
        assert part.processes() == []
    wait_until(lambda: part.name not in [one.name for one in client.slices()])


def test_slices_and_jobs_as_objects(client: Client, tmp_path: Path) -> None:
    client.create_slice("a", size("0.25"))
    part = client.use_slice("a")
    assert (part.pause().suspended, part.resume().suspended) == ("paused", "")
    part.delete()
    with pytest.raises(NotFoundError, match="a"):
        part.get()
    client.create_slice("b", size(1))
    with pytest.raises(NoCapacityError):
        client.create_slice("c", size(0.5))
    client.use_slice("b").delete()
    command = ("sh", "-c", "echo trained; exit 3")
    spec = JobSpec(slice=size(0.1), command=command, directory=str(tmp_path), environment={"PATH": os.environ["PATH"]})
    job = client.use_job(client.submit(spec)[0])
    done = job.wait()
    assert (done.state, done.exit_code, job.logs()) == ("failed", 3, "trained\n")
    with pytest.raises(NotFoundError, match="members are 0 to 0"):
        job.logs(member=1)
    assert job.explain() and job.get().exit_code == 3


def test_reservations(client: Client) -> None:
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    made = client.create_reservation(Reservation(name="r", device_uuids=("0",), end_time=end))
    assert made.name == "r" and [one.name for one in client.reservations()] == ["r"]
    client.delete_reservation("r")
    assert client.reservations() == []


@pytest.mark.parametrize("wrong", [{"gpus": True}, {"gpus": "x"}, {"gpus": 1, "mem": 1.5}, {"mem": 1, "mem_max": 1}])
def test_sizes_that_are_none_are_refused_with_their_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SizeError, match=r"gpus|mem"):
        size(**wrong)


def test_devices_and_tokens(client: Client) -> None:
    assert client.node().name == "n1"
    (device,) = client.devices()
    assert (device.offered, device.drained) == (True, "")
    assert client.drain_device("0", "a test").drained == "a test"
    assert client.undrain_device("0").drained == ""
    token, secret = client.create_token(note="a test", ttl_s=60)
    assert token in client.tokens()
    with Client(client.target, token=secret) as other:
        assert other.node() == client.node()
        with pytest.raises(ClientError, match="a token makes no further tokens"):
            other.create_token()
    client.revoke_token(token.token_id)
    with Client(client.target, token=secret) as other, pytest.raises(ClientError) as error:
        other.node()
    assert (error.value.status, error.value.exit_code) == ("UNAUTHENTICATED", ExitCode.DENIED)


def test_errors_say_what_to_do(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no slice 'x' on this node") as error:
        client.get_slice("x")
    assert (error.value.status, error.value.exit_code, error.value.is_unanswered) == ("NOT_FOUND", 4, False)
    with pytest.raises(ClientError, match="is not UTF-8"):
        client.get_slice("\udcff")
    with pytest.raises(ClientError, match="at most 250000 are possible"):
        client.submit(JobSpec(command=("x" * 300_000,)))
    with pytest.raises(Exception, match="daemon not running: start it with `vgpud serve`"):
        Client(f"unix://{tmp_path}/none.sock")
    with pytest.raises(Exception, match="names no daemon"):
        Client("gpu1")


def test_a_watch_of_named_jobs_ends_with_the_last_of_them(client: Client) -> None:
    """The example of docs/api.md would never end. Without names it continues: there may be new ones."""
    numbers = [*client.submit(held()), *client.submit(held())]
    client.cancel(numbers[0])
    seen = []
    for job in client.watch_jobs(numbers):
        seen.append((job.job_id, job.state))
        if seen[-1] == (numbers[1], "held"):
            client.cancel(numbers[1])
    assert seen[0] == (numbers[0], "cancelled") and seen[-1] == (numbers[1], "cancelled")
    assert [job.state for job in client.watch_jobs(numbers)] == ["cancelled"] * 2, "all have ended before"

    async def states() -> list[str]:
        async with AsyncClient(client.target) as other:
            return [job.state async for job in other.watch_jobs(numbers)]

    assert asyncio.run(states()) == ["cancelled"] * 2


def test_a_job_that_is_queued_again_has_not_ended() -> None:
    unended = calls.Unended([1, 2])
    failed, pending = pb.JOB_STATE_FAILED, pb.JOB_STATE_PENDING
    for number, state, over in ((1, failed, False), (1, pending, False), (2, pb.JOB_STATE_COMPLETED, False)):
        unended.see(pb.Job(job_id=number, state=state))
        assert unended.is_over == over
    unended.see(pb.Job(job_id=1, state=pb.JOB_STATE_TIMED_OUT))
    assert unended.is_over
    no_jobs = calls.Unended([])
    no_jobs.see(pb.Job(job_id=1, state=failed))
    assert not no_jobs.is_over


def test_the_same_for_asyncio(client: Client) -> None:
    async def main() -> None:
        async with AsyncClient(client.target) as other:
            made = await other.create_slice("a", SliceSpec(gpus_milli=250))
            assert made.spec == client.get_slice("a").spec
            assert [one.name for one in await other.slices()] == ["a"]
            (number,) = await other.submit(held())
            async for job in other.watch_jobs([number]):
                assert job.state == "held"
                break
            await other.cancel(number)
            with pytest.raises(ClientError, match="no slice 'x'"):
                await other.get_slice("x")
            both = await asyncio.gather(other.devices(), other.node())
            assert (len(both[0]), both[1].name) == (1, "n1")

    asyncio.run(main())


def test_both_clients_offer_the_same() -> None:
    def offered(cls: type) -> dict[str, list[str]]:
        found = {name: member for name, member in inspect.getmembers(cls, callable) if not name.startswith("_")}
        return {name: list(inspect.signature(member).parameters) for name, member in found.items()}

    assert offered(Client) == offered(AsyncClient)
    assert {"slices", "jobs", "events", "devices", "simulate", "predict"} <= set(offered(Client))


def test_every_field_of_every_message_goes_both_ways() -> None:
    """Whatever the API adds: the dataclasses are made from it, and the conversion names no field."""
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        cls = getattr(model, name, None)
        if cls is None:
            continue
        empty: Message = getattr(pb, name)()
        assert messages.write(getattr(pb, name), messages.read(cls, empty)) == empty, name
        assert list(cls.__dataclass_fields__) == [field.name for field in message.fields]
    spec = pb.JobSpec(
        slice=pb.SliceSpec(gpus_milli=5, min_milli=0, device_uuids=["a", "b"]), command=["x"], environment={"k": "v"}
    )
    spec.time_limit.seconds, spec.prediction.mem_bytes.value = 7, 1.5
    spec.limits.add(name="nofile", soft=1)
    read: Any = messages.read(model.JobSpec, spec)
    assert read.slice.min_milli == 0 and read.slice.max_milli is None
    assert (read.time_limit, read.limits[0].hard) == (timedelta(seconds=7), None)
    assert messages.write(pb.JobSpec, read) == spec


def test_every_call_is_one_of_the_api() -> None:
    made = [
        calls.node(),
        calls.devices(),
        calls.slices(),
        calls.jobs(False, "", None, (), None),
        calls.queues(),
        calls.events(),
    ]
    made += [calls.tokens(), calls.get_slice("a"), calls.job(1), calls.watch_jobs([]), calls.watch_slices(100)]
    for call in made:
        method = pb.DESCRIPTOR.services_by_name[f"{call.service}Service"].methods_by_name[call.method]
        assert call.request.DESCRIPTOR is method.input_type


def test_a_simulation_and_a_prediction_of_an_unknown_device(client: Client, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,1,0,1,resnet50,60,0\n")
    found = client.simulate(trace, "1x2", ("fifo", "2d-las(3250,7200)"))
    assert {name: figures.jobs for name, figures in found.items()} == {"fifo": 1, "2d-las(3250,7200)": 1}
    with pytest.raises(Exception, match="no-such-model"):
        client.predict("no-such-model.onnx", gpu="h200")


def test_programs_that_only_report_load_no_grpc() -> None:
    code = "import sys, vgpud.client; vgpud.client.report(1); assert not {'grpc', 'ssl'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_slice_that_cannot_be_held_leaves_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_slice, "connect", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOENT, "gone")))
    with pytest.raises(ClientError, match="gone"), client.slice(0.5, name="a"):
        pass
    assert client.slices() == []


def test_why_a_slice_cannot_be_held_is_said_although_it_has_gone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_away(_path: str, _program: str) -> NoReturn:
        client.delete_slice("a", force=True)
        raise OSError(errno.ENOENT, "gone")

    monkeypatch.setattr(held_slice, "connect", go_away)
    with pytest.raises(ClientError, match="cannot use the slice's socket"), client.slice(0.5, name="a"):
        pass


def test_a_token_makes_no_slice_for_a_while(empty_node: Node) -> None:
    with Client(f"unix://{empty_node.runtime / 'vgpud.sock'}", token="not-a-token") as other:  # noqa: S106 - never sent
        with pytest.raises(ClientError, match="use a client without a token") as refused, other.slice(0.5):
            pass
        assert refused.value.exit_code == ExitCode.USAGE


def test_no_daemon_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError):
        Client(f"unix://{tmp_path}/none.sock")


def test_waiting_for_no_job_ends(client: Client) -> None:
    assert client.wait([]) == []


def test_logs_that_are_no_file_are_refused(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    job = model.Job(job_id=1, log=str(tmp_path / "fifo"))
    with pytest.raises(ClientError, match="not a regular file"):
        read_log(job, 0, is_remote=False)
    with pytest.raises(ClientError, match="on the daemon's machine"):
        read_log(job, 0, is_remote=True)


def test_the_log_of_a_job_that_is_a_directory_is_closed_again(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ClientError, match="not a regular file"):
            read_log(model.Job(job_id=1, log=str(tmp_path)), 0, is_remote=False)
    assert len(os.listdir("/proc/self/fd")) == before
