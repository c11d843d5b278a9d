"""Pending slices at a real daemon: bound by the first attach, asked about without being bound, refused in words."""

from __future__ import annotations

import datetime
import signal
import uuid

import grpc
import pytest

from tests.attach import client
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slice_tables import slices_grid
from vgpud.view.slices import slice_view


def raw(text: str) -> bytes:
    return uuid.UUID(text.removeprefix("GPU-")).bytes


@pytest.fixture
def uuids(node: Node) -> list[str]:
    """Of the two devices of a daemon on which slice a is pending."""
    node.env = {"FAKE_DEVICES": "2"}
    node.start()
    node.create(ephemeral=True, pending=True)
    return [d.uuid for d in node.nodes.ListDevices(pb.ListDevicesRequest()).devices]


def attach(node: Node, *uuids: str, kind: int = client.FRESH, name: str = "a") -> client.Tenant:
    held = tuple((raw(text), 0) for text in uuids)
    return client.attach(node.socket(name), client.request(kind, held=held))


def test_the_first_attach_binds_it(node: Node, uuids: list[str]) -> None:
    assert not node.get().devices
    holder = attach(node, kind=client.HOLD)
    assert holder.status == client.OK and not node.get().devices
    tenant = attach(node, uuids[1])
    assert tenant.status == client.OK and [row[0] for row in tenant.devices] == [raw(uuids[1])]
    assert tenant.devices[0][1:3] == (500, 500) and len(tenant.fds) == 3
    assert [d.device_uuid for d in node.get().devices] == [uuids[1]]
    second = attach(node, uuids[0])
    assert [row[0] for row in second.devices] == [raw(uuids[1])], "it stays where it is"
    assert [d.reserved_milli for d in node.nodes.ListDevices(pb.ListDevicesRequest()).devices] == [0, 500]
    for one in (tenant, second, holder):
        one.close()
    # this process lives on and may come back, but one that only held it is gone, and so is its memory
    node.slices.DeleteSlice(pb.DeleteSliceRequest(name="a", force=True))
    assert node.names() == []


def test_it_is_saved_where_it_is_bound(node: Node, uuids: list[str]) -> None:
    tenant = attach(node, uuids[1])
    assert tenant.status == client.OK
    node.stop(signal.SIGKILL)
    node.start()
    assert [d.device_uuid for d in node.get().devices] == [uuids[1]]
    tenant.close()


def test_asking_binds_nothing(node: Node, uuids: list[str]) -> None:
    sock = client.connect(node.socket())
    sock.send(client.request(client.QUERY, held=((raw(uuids[1]), 0),)))
    shown = client.receive(sock)
    assert shown.status == client.OK and [row[0] for row in shown.devices] == [raw(uuids[1])]
    shown.close()
    assert not node.get().devices
    nothing = attach(node, kind=client.QUERY)
    assert nothing.status == client.DENIED and "names no device" in nothing.text
    nothing.close()


def test_a_full_device_is_refused_in_words(node: Node, uuids: list[str]) -> None:
    node.create("other", 800, spec={"device_uuids": [uuids[0]]})
    refused = attach(node, uuids[0])
    assert refused.status == client.DENIED
    assert refused.text.startswith("slice a cannot be bound: no device has min 0.5"), refused.text
    refused.close()
    wait_until(lambda: any("cannot be bound" in e.message for e in events(node)), "the event")
    attach(node, uuids[1]).close()
    assert [d.device_uuid for d in node.get().devices] == [uuids[1]]


def events(node: Node) -> list[pb.Event]:
    return list(node.events.ListEvents(pb.ListEventsRequest()).events)


def test_it_is_in_the_table_without_a_device(node: Node, uuids: list[str]) -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    grid = slices_grid([slice_view(node.get(), frozenset())], now)
    (row,) = grid.rows
    assert len(row) == len(grid.titles) and (row[0], *row[4:7]) == ("a", "pending", "0.5", "-")


def test_sizes_that_no_device_has_are_refused_at_once(node: Node, uuids: list[str]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        node.create("b", 500, spec={"mem_max_bytes": 1 << 50}, pending=True)
    assert "is more than device 0 has" in caught.value.details()
