"""The gRPC API of a real daemon: status codes, rich details, idempotency, pages, watches."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import grpc
import pytest
from google.protobuf import field_mask_pb2
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemon.node import Node, wait_until
from tests.examples import examples
from vgpud.config import ArbiterConfig
from vgpud.v1alpha1 import vgpud_pb2 as pb

GIB = 1 << 30


def refusal(call: Any, *args: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        call(*args)
    assert "\n" not in error.value.details()
    return error.value


def detail(error: grpc.RpcError, kind: Any) -> Any:
    for packed in rpc_status.from_call(error).details:
        if packed.Is(kind.DESCRIPTOR):
            found = kind()
            packed.Unpack(found)
            return found
    raise AssertionError(f"no {kind.DESCRIPTOR.name} in the status")


def test_node_and_devices(node: Node) -> None:
    node.env = {"FAKE_DEVICES": "3"}
    node.start()
    reply = node.nodes.GetNode(pb.GetNodeRequest()).node
    assert (reply.name, reply.abi_version, reply.mode, reply.simulated) == ("n1", 4, pb.TENANT_MODE_COAST, False)
    devices = node.nodes.ListDevices(pb.ListDevicesRequest()).devices
    assert [d.index for d in devices] == [0, 1, 2]
    assert {d.node for d in devices} == {"n1"}
    assert devices[0].mem_total_bytes == 80 * GIB
    first = node.nodes.ListDevices(pb.ListDevicesRequest(page_size=2))
    rest = node.nodes.ListDevices(pb.ListDevicesRequest(page_size=2, page_token=first.next_page_token))
    assert [d.index for d in [*first.devices, *rest.devices]] == [0, 1, 2]
    assert not rest.next_page_token


def test_four_numbers_are_answered_and_kept(empty_node: Node) -> None:
    made = empty_node.create(milli=500, spec={"min_milli": 300, "max_milli": 800, "mem_max_bytes": 8 * GIB})
    (share,) = made.devices
    assert (share.min_milli, share.max_milli, share.mem_min_bytes, share.mem_max_bytes) == (300, 800, 8 * GIB, 8 * GIB)
    assert made.node == share.node == "n1"
    assert made.attach_socket == empty_node.socket()
    kept = empty_node.get()
    assert (kept.uid, kept.revision, kept.spec) == (made.uid, made.revision, made.spec)
    (device,) = empty_node.nodes.ListDevices(pb.ListDevicesRequest()).devices
    assert (device.reserved_milli, device.mem_reserved_bytes) == (300, 8 * GIB)


def test_invalid_names_the_field(empty_node: Node) -> None:
    for milli, spec in ((0, {}), (-1000, {}), (2500, {}), (500, {"min_milli": 900, "max_milli": 800})):
        error = refusal(lambda m=milli, s=spec: empty_node.create(milli=m, spec=s))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        violation = detail(error, error_details_pb2.BadRequest).field_violations[0]
        assert violation.description == error.details()
        assert violation.field in ("gpus_milli", "min_milli")
    over = refusal(lambda: empty_node.create(spec={"mem_max_bytes": 81 * GIB, "mem_min_bytes": 0}))
    assert over.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "81GiB" in over.details()
    assert empty_node.names() == []


def test_connections_without_a_first_frame_are_ended(empty_node: Node) -> None:
    """gRPC's own deadline is a minute."""
    begun = []
    for begin in (b"", b"PRI", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30)
        sock.connect(str(empty_node.runtime / "vgpud.sock"))
        sock.sendall(begin)
        begun.append(sock)
    for sock in begun:
        with sock, contextlib.suppress(ConnectionError):
            while sock.recv(1000):
                continue


def test_other_refusals(empty_node: Node) -> None:
    empty_node.create("a", 700)
    full = refusal(lambda: empty_node.create("b", 500))
    assert full.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(full, error_details_pb2.QuotaFailure).violations[0].subject.startswith("GPU-")
    assert detail(full, error_details_pb2.ErrorInfo).reason == "NO_CAPACITY"
    assert refusal(lambda: empty_node.create("a", 100)).code() is grpc.StatusCode.ALREADY_EXISTS
    for call in (
        lambda: empty_node.get("nope"),
        lambda: empty_node.slices.DeleteSlice(pb.DeleteSliceRequest(name="nope")),
        lambda: empty_node.slices.UpdateSlice(pb.UpdateSliceRequest(name="nope")),
        lambda: empty_node.slices.ListProcesses(pb.ListProcessesRequest(slice="nope")),
    ):
        error = refusal(call)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert "'nope'" in error.details()
    for elsewhere in (
        lambda: empty_node.slices.GetSlice(pb.GetSliceRequest(node="n2", name="a")),
        lambda: empty_node.create("b", 100, node="n2"),
        lambda: empty_node.slices.UpdateSlice(pb.UpdateSliceRequest(node="n2", name="a")),
        lambda: empty_node.slices.DeleteSlice(pb.DeleteSliceRequest(node="n2", name="a")),
        lambda: empty_node.slices.ListProcesses(pb.ListProcessesRequest(node="n2", slice="a")),
    ):
        error = refusal(elsewhere)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert "not 'n2'" in error.details()
    assert empty_node.names() == ["a"]
    token = refusal(lambda: empty_node.slices.ListSlices(pb.ListSlicesRequest(page_token="%%%")))  # noqa: S106
    assert token.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_what_names_a_device_a_slice_or_a_process_names_its_node() -> None:
    """So that several nodes need no second version of the API. Specs, claims, ArbiterThread, TimeSlice and TraceEvent
    are only ever parts of such messages; jobs may run on any node, and queues and reservations are the same on all."""
    names = {"name", "slice", "uuid", "device_uuid", "device_uuids", "process_id", "pid"}
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        fields = {field.name for field in message.fields if not field.message_type}
        parts = (
            "Node",
            "ArbiterThread",
            "TimeSlice",
            "SliceSpec",
            "TraceEvent",
            "Claim",
            "ClaimShare",
            "PublishedDevice",
            "PublishedCapacity",
            "JobSpec",
            "ResourceLimit",
            "Queue",
            "DeleteQueueRequest",
            "DeleteReservationRequest",
        )
        if fields & names and message.name not in parts:
            assert "node" in fields, message.name


def test_repeated_request_gets_the_first_answer(empty_node: Node) -> None:
    first = empty_node.create("a", 100, request_id="r1")
    again = empty_node.create("a", 100, request_id="r1")
    assert (again.uid, again.revision, again.spec) == (first.uid, first.revision, first.spec)
    error = refusal(lambda: empty_node.create("b", 100, request_id="r1"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert empty_node.names() == ["a"]


def test_pages(empty_node: Node) -> None:
    for name in ("c", "a", "b", "e", "d"):
        empty_node.create(name, 100)
    shown: list[str] = []
    request = pb.ListSlicesRequest(page_size=2)
    while True:
        answer = empty_node.slices.ListSlices(request)
        shown += [s.name for s in answer.slices]
        if len(shown) == 2:
            empty_node.slices.DeleteSlice(pb.DeleteSliceRequest(name="b"))  # pages stay right while slices go
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
    assert shown == ["a", "b", "c", "d", "e"]


def test_update_and_delete(node: Node) -> None:
    node.start()
    node.create("a", 500)
    request = pb.UpdateSliceRequest(name="a", spec=pb.SliceSpec(gpus_milli=250, max_milli=1000))
    changed = node.slices.UpdateSlice(request).slice
    assert (changed.devices[0].min_milli, changed.devices[0].max_milli, changed.revision) == (250, 1000, 2)
    node.slices.DeleteSlice(pb.DeleteSliceRequest(name="a"))
    assert node.names() == []
    assert not (node.runtime / "slices" / "a").exists()
    assert node.event_kinds() == ["slice.created", "slice.updated", "slice.deleted"]


def test_an_update_tells_what_has_changed(node: Node) -> None:
    node.start()
    node.create("a", 500)
    spec = pb.SliceSpec(gpus_milli=500, weight=10_000, priority=3, service_class=pb.SERVICE_CLASS_LATENCY)
    node.slices.UpdateSlice(pb.UpdateSliceRequest(name="a", spec=spec))
    (message,) = node.messages("slice.updated")
    assert message.endswith("; weight 0 -> 10000; priority 0 -> 3; class batch -> latency")


def test_what_is_too_long_to_be_repeated_is_cut(empty_node: Node) -> None:
    for name in ("a" * 6000, "\u00fc" * 6000):
        with pytest.raises(grpc.RpcError) as error:
            empty_node.slices.GetSlice(pb.GetSliceRequest(name=name))
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        assert rpc_status.from_call(error.value).code == grpc.StatusCode.NOT_FOUND.value[0]


def test_update_changes_what_the_mask_names(empty_node: Node) -> None:
    empty_node.create(
        "a", 500, spec={"max_milli": 900, "weight": 5, "priority": 7, "service_class": pb.SERVICE_CLASS_LATENCY}
    )

    def update(*paths: str, **spec: Any) -> pb.Slice:
        mask = field_mask_pb2.FieldMask(paths=paths)
        request = pb.UpdateSliceRequest(name="a", spec=pb.SliceSpec(**spec), update_mask=mask)
        return empty_node.slices.UpdateSlice(request).slice

    back = update("max_milli", "weight", min_milli=100, priority=9)
    assert (back.devices[0].min_milli, back.devices[0].max_milli) == (500, 500)
    assert (back.spec.weight, back.spec.priority, back.spec.service_class) == (0, 7, pb.SERVICE_CLASS_LATENCY)
    assert update(priority=9).spec.priority == 9
    assert update("service_class").spec.service_class == pb.SERVICE_CLASS_BATCH
    for paths, spec, word in (
        (("min_mili",), {}, "min_mili"),
        (("gpus_milli",), {}, "0 GPUs"),
        (("min_milli", "max_milli"), {"min_milli": 900, "max_milli": 100}, "min 0.9 is above max 0.1"),
        (
            ("min_milli", "service_class"),
            {"min_milli": 0, "service_class": pb.SERVICE_CLASS_LATENCY},
            "class latency with min 0",
        ),
        ((), {"service_class": 77}, "'77'"),
        ((), {"weight": 1 << 31}, f"weight {1 << 31}"),
        ((), {"gpus_milli": -1}, "-0.001 GPUs"),
    ):
        error = refusal(lambda p=paths, s=spec: update(*p, **s))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert word in error.details()
    assert empty_node.get("a").revision == 4


def test_class_and_spread_survive_a_restart(node: Node) -> None:
    node.start()
    made = node.create("a", 500, spec={"service_class": pb.SERVICE_CLASS_LATENCY, "spread": 1})
    assert (made.spec.service_class, made.spec.spread) == (pb.SERVICE_CLASS_LATENCY, 1)
    node.stop()
    node.start()
    assert node.get("a").spec == made.spec


def test_watch_sends_a_change_at_once(node: Node) -> None:
    node.start()
    stream = node.slices.WatchSlices(pb.WatchSlicesRequest(interval_ms=60_000))
    assert list(next(stream).slices) == []
    threading.Timer(0.1, node.create).start()
    assert [s.name for s in next(stream).slices] == ["a"]
    stream.cancel()


def test_watch_events_from_a_number_on(node: Node) -> None:
    node.start()
    node.create("a", 100)
    node.create("b", 100)
    stream = node.events.WatchEvents(pb.WatchEventsRequest(after_sequence=1))
    assert next(stream).event.slice == "b"
    node.create("c", 100)
    event = next(stream).event
    assert (event.slice, event.kind, event.sequence, event.node) == ("c", "slice.created", 3, "n1")
    stream.cancel()


def test_watches_are_bounded(node: Node) -> None:
    node.start()
    streams = [node.slices.WatchSlices(pb.WatchSlicesRequest(interval_ms=60_000)) for _ in range(64)]
    for stream in streams:
        next(stream)
    error = refusal(next, node.slices.WatchSlices(pb.WatchSlicesRequest()))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for stream in streams:
        stream.cancel()

    def watched_again() -> bool:
        again = node.slices.WatchSlices(pb.WatchSlicesRequest())
        try:
            return next(again) is not None
        except grpc.RpcError:
            return False
        finally:
            again.cancel()

    assert wait_until(watched_again), "a watch that ended makes room"


def test_arbiter_is_tuned_live(node: Node) -> None:
    node.start()
    params = pb.ArbiterParams(quantum_ns=6_000_000, lookahead_ns=0)
    now = node.nodes.SetArbiterParams(pb.SetArbiterParamsRequest(params=params)).params
    assert now.quantum_ns == 6_000_000
    assert now.lookahead_ns == 0, "not ahead at all"
    assert now.overrun_ns == ArbiterConfig().overrun_ns
    wrong = pb.SetArbiterParamsRequest(params=pb.ArbiterParams(overrun_ns=-1))
    error = refusal(lambda: node.nodes.SetArbiterParams(wrong))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "overrun_ns = -1" in error.details()
    assert node.nodes.SetArbiterParams(pb.SetArbiterParamsRequest()).params == now


def test_health_and_reflection(empty_node: Node) -> None:
    health = health_pb2_grpc.HealthStub(empty_node.channel())
    for service in ("", "vgpud.v1alpha1.SliceService"):
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == 1
    mirror = reflection_pb2_grpc.ServerReflectionStub(empty_node.channel())
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = mirror.ServerReflectionInfo(iter([ask]))
    listed = {s.name for s in answer.list_services_response.service}
    assert {"vgpud.v1alpha1.NodeService", "vgpud.v1alpha1.SliceService", "vgpud.v1alpha1.EventService"} <= listed
    request, response = reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse
    newer = empty_node.channel().stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", request.SerializeToString, response.FromString
    )
    assert list(newer(iter([ask]))) == [answer]
    (described,) = newer(iter([request(file_containing_symbol="vgpud.v1alpha1.SliceService")]))
    assert described.file_descriptor_response.file_descriptor_proto


EXTREME = st.sampled_from([-(2**63), -1, 0, 1, 500, 1000, 2**31, 2**40, 2**63 - 1])


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_extreme_numbers_are_answered(shared: Node, data: st.DataObject) -> None:
    spec = pb.SliceSpec(gpus_milli=data.draw(EXTREME), weight=data.draw(st.sampled_from([0, 7, 2**32 - 1])))
    for field in ("min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes"):
        if data.draw(st.booleans()):
            setattr(spec, field, data.draw(EXTREME))
    create = pb.CreateSliceRequest(spec=spec, owner_uid=data.draw(EXTREME), name=data.draw(st.text(max_size=50)))
    if "a" not in shared.names():
        shared.create("a", 100)
    update = pb.UpdateSliceRequest(name="a", spec=spec)
    refused_as: set[grpc.StatusCode] = set()
    for method, request in ((shared.slices.CreateSlice, create), (shared.slices.UpdateSlice, update)):
        try:
            made = method(request, timeout=10).slice
        except grpc.RpcError as error:
            refused_as.add(error.code())
            continue
        if made.name != "a":
            shared.slices.DeleteSlice(pb.DeleteSliceRequest(name=made.name))
    taken = {grpc.StatusCode.ALREADY_EXISTS} if create.name == "a" else set()
    assert refused_as <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED} | taken


@settings(max_examples=examples(100), deadline=None)
@given(raw=st.binary(max_size=200), method=st.sampled_from(["Create", "Update", "Delete", "List", "Get"]))
def test_garbage_is_answered(shared: Node, raw: bytes, method: str) -> None:
    name = f"/vgpud.v1alpha1.SliceService/{method}Slice{'s' if method == 'List' else ''}"
    before = shared.names()
    call = shared.channel().unary_unary(name)
    with contextlib.suppress(grpc.RpcError):
        call(raw, timeout=10)
    assert shared.names() == before


def test_oversized_request_is_refused(empty_node: Node) -> None:
    error = refusal(lambda: empty_node.create("x" * (1 << 20)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert empty_node.names() == []
