"""The page of what a node publishes to Kubernetes, and which claims have which part of it."""

from __future__ import annotations

import time

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon, uuid_of
from vgpud.console.pages.kubernetes import describe_pods, describe_request, group_offers
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import FakeBroker, text_of

GIB = 1 << 30
NASTY = "<script>alert('x')</script>"


def capacity(name: str, value: str, *bounds: str) -> pb.PublishedCapacity:
    fields = dict(zip(("default_value", "min_value", "max_value", "step_value"), bounds, strict=False))
    return pb.PublishedCapacity(name=name, value=value, **fields)


def publish(daemon: FakeDaemon, problem: str = "") -> pb.Publication:
    """As the driver of a node with one GPU for Kubernetes says it."""
    daemon.devices[0].kubernetes = True
    daemon.devices[0].offered = True
    made = pb.Publication(node="testnode", pool="n1", generation=7, problem=problem)
    made.report_time.GetCurrentTime()
    free = [capacity("memory", "64Gi", "64Gi", "2Mi", "64Gi", "2Mi"), capacity("sm", "1k", "1k", "0", "1k", "1")]
    made.devices.add(name="gpu-0", device_uuid=uuid_of(0), shareable=True, capacities=free)
    for number in range(10):
        fixed = [capacity("memory", "6552Mi"), capacity("sm", "100")]
        made.devices.add(name=f"gpu-0-tenth-{number}", device_uuid=uuid_of(0), capacities=fixed)
    daemon.publication = made
    return made


def add_claim(daemon: FakeDaemon, name: str = "half", milli: int = 500, **claim: object) -> pb.Slice:
    fields = {"uid": f"uid-{name}", "namespace": "team", "name": name, "pod_uids": ["p1"], "pod_names": ["train-0"]}
    item = pb.Slice(node="testnode", name=f"k-{name}", uid=f"s-{name}", owner_uid=0)
    item.claim.MergeFrom(pb.Claim(**{**fields, **claim}))  # type: ignore[arg-type]
    item.claim.granted.add(device_uuid=uuid_of(0), min_milli=milli)
    item.devices.add(device_uuid=uuid_of(0), min_milli=milli, max_milli=milli, mem_min_bytes=GIB, mem_max_bytes=3 * GIB)
    daemon.slices[item.name] = item
    daemon.devices[0].reserved_milli += milli
    return item


def test_the_page_has_the_pool_its_devices_and_who_has_them(alice: TestClient, daemon: FakeDaemon) -> None:
    publish(daemon)
    add_claim(daemon)
    for path in ("/kubernetes", "/kubernetes/part"):
        html = alice.get(path).text
        text = text_of(html)
        assert "pool n1 generation 7 11 published devices" in text, path
        assert "gpu-0 1 memory 64Gi 2Mi to 64Gi in steps of 2Mi; 64Gi if it does not ask" in text
        assert "sm 1k 0 to 1k in steps of 1; 1k if it does not ask" in text
        assert "gpu-0-tenth-0 to gpu-0-tenth-9 10 memory 6552Mi all of it" in text
        assert "gpu-0-tenth-4" in html, "all names are in the cell's title"
        assert "team/half train-0" in text and 'href="/slice/k-half"' in html
        assert "0.5" in text and "3G" in text
        assert "Not published" not in text and "may not see" not in text


def test_the_other_pages_lead_there_where_a_device_is_given_to_kubernetes(
    alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker
) -> None:
    for path in ("/", f"/device/{uuid_of(0)}", "/nodes"):
        assert "/kubernetes" not in alice.get(path).text, path
    assert "No device of this node is given to Kubernetes" in alice.get("/kubernetes").text
    publish(daemon)
    fake_broker.contexts["n2"] = 77
    for path in ("/", f"/device/{uuid_of(0)}", "/nodes"):
        wait_for(alice, path, 'href="/kubernetes"')
    wait_for(alice, "/nodes", 'href="/at/n2/kubernetes"')
    wait_for(alice, "/at/n2/kubernetes", 'hx-get="/at/n2/kubernetes/part"')


def wait_for(alice: TestClient, path: str, text: str) -> None:
    """A board is updated by a stream."""
    until_s = time.monotonic() + 30
    while text not in (html := alice.get(path).text):
        assert time.monotonic() < until_s, html
        time.sleep(0.1)


def test_why_nothing_is_published_is_said(alice: TestClient, daemon: FakeDaemon) -> None:
    daemon.devices[0].kubernetes = True
    daemon.publication = pb.Publication(problem=f"no driver has said so {NASTY}")
    html = alice.get("/kubernetes").text
    assert "Not published: no driver has said so" in text_of(html) and NASTY not in html
    assert "Nothing of it is published." in html
    publish(daemon, problem="the driver does not report any more")
    assert "Not as it should be: the driver does not report any more" in text_of(alice.get("/kubernetes").text)


def test_a_node_of_an_older_version_is_said_to_have_no_answer(
    alice: TestClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(daemon)
    add_claim(daemon)
    monkeypatch.setattr(daemon, "publication", "no message")  # so the fake's answer fails
    text = text_of(alice.get("/kubernetes").text)
    assert "Not published:" in text and "team/half" in text, "claims are the daemon's own"


def test_what_a_user_may_not_see_is_a_sum(alice: TestClient, daemon: FakeDaemon) -> None:
    publish(daemon)
    daemon.devices[0].reserved_milli = 700
    text = text_of(alice.get("/kubernetes").text)
    assert "Slices that you may not see are guaranteed 0.7 GPUs of it." in text
    assert "No claim has a part of it" not in text


def test_a_claim_that_was_made_smaller_hides_nothing(alice: TestClient, daemon: FakeDaemon) -> None:
    publish(daemon)
    add_claim(daemon).devices[0].min_milli = 200
    text = text_of(alice.get("/kubernetes").text)
    assert "team/half" in text and "may not see" not in text, "the scheduler has given the rest to no one"


def test_a_device_that_a_claim_has_still_is_shown(alice: TestClient, daemon: FakeDaemon) -> None:
    add_claim(daemon)
    daemon.publication = pb.Publication(problem="x")
    assert "no longer given to Kubernetes" in alice.get("/kubernetes").text


def test_the_device_plugin_counts(alice: TestClient, daemon: FakeDaemon) -> None:
    made = publish(daemon)
    made.pool, made.resource = "", "vgpu.dev/tenth"
    del made.devices[:]
    made.devices.add(
        name="gpu-0", device_uuid=uuid_of(0), shareable=True, capacities=[capacity("vgpu.dev/tenth", "10")]
    )
    add_claim(daemon, "tenth", namespace="vgpu.dev", device_ids=["a", "b"], pod_uids=[], pod_names=[])
    del daemon.slices["k-tenth"].claim.pod_names[:], daemon.slices["k-tenth"].claim.pod_uids[:]
    daemon.slices["k-tenth"].containers.add(name="web-0/main")
    text = text_of(alice.get("/kubernetes").text)
    assert "kubelet counts vgpu.dev/tenth : there are no ResourceSlices" in text
    assert "2 of vgpu.dev/tenth web-0" in text and "any part" in text


def test_updates_of_an_open_page_keep_no_log_in_alive(alice: TestClient, fake_broker: FakeBroker) -> None:
    alice.get("/kubernetes")
    assert fake_broker.uses[-1]
    alice.get("/kubernetes/part")
    assert not fake_broker.uses[-1]


def test_what_a_claim_may_have() -> None:
    assert describe_request(capacity("slices", "96", "1", "1", "1"), True) == "1; 1 if it does not ask"
    assert describe_request(capacity("sm", "100"), False) == "all of it"
    assert describe_request(capacity("sm", "100", "", "", "5"), True) == "0 to 5"


def test_pods_of_a_claim_are_named_as_far_as_they_are_known() -> None:
    def pods(*names: str, uids: int) -> str:
        return describe_pods(pb.Slice(claim=pb.Claim(pod_names=names, pod_uids=[str(n) for n in range(uids)])))

    assert pods(uids=0) == "none yet"
    assert (pods(uids=1), pods(uids=3)) == ("1 pod", "3 pods")
    assert pods("a", "b", uids=2) == "a, b" and pods("a", uids=2) == "a and 1 more"
    assert pods(*"abcdef", uids=6) == "a, b, c, d and 2 more"


def test_devices_that_differ_in_their_names_only_are_one_row() -> None:
    names = [f"gpu-0-tenth-{n}" for n in (10, 9, 2)]
    made = [pb.PublishedDevice(name=name, capacities=[capacity("sm", "100")]) for name in names]
    (offer,) = group_offers([*made])
    assert offer.label == "gpu-0-tenth-2 to gpu-0-tenth-10" and len(offer.names) == 3
    made[0].capacities[0].value = "99"
    assert len(group_offers(made)) == 2
