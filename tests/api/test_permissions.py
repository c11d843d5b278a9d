"""Who may call what: every RPC that there is, by every role that there is, on a real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor, message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.api.asker import Asker
from tests.attach import client
from tests.daemon.node import Node, own_node
from vgpud.api import server
from vgpud.api.caller import Caller
from vgpud.api.peer_proxy import Peer
from vgpud.api.permissions import JOBS_NAMED_MAX, METHODS, STREAMS_PER_USER_MAX, Authorizer, Row, Who, why_not
from vgpud.api.rpc import WATCHERS_MAX, WATCHERS_PER_USER_MAX, Watching
from vgpud.core.model import ANYONE, Denied
from vgpud.oci.request import Limits
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: only root can")

OWNER, OTHER, MEMBER = 61001, 61002, 61003
ADMIN_GROUP = next(group for group in grp.getgrall() if group.gr_gid > 0)
#: role -> UID:GID:GROUPS
ROLES = {
    "root": "0:0",
    "member of the admins' group": f"{MEMBER}:{MEMBER}:{MEMBER + 1},{ADMIN_GROUP.gr_gid}",
    "owner": f"{OWNER}:{OWNER}",
    "other": f"{OTHER}:{OTHER}:{OWNER}",
}
SLICES_PER_USER_MAX = 5
UNKNOWN = "on a connection past the proxy"
SERVICES = [
    service
    for file in (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
]
RPCS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
V1ALPHA = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
RPCS[V1ALPHA.replace("v1alpha", "v1")] = RPCS[V1ALPHA]  # the same messages, under the name that clients ask for first
#: methods of others' services that they do not implement
NOT_SERVED = {"/grpc.health.v1.Health/List"}

#: a stream says later which job it is about
NAMED_BY_STREAM = (Who.WORKER, Who.VIEWER, Who.SESSION_OWNER)


class AllRoles:
    """A node that lets every user connect, and one asker of each role."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.askers = {role: Asker(f"unix:{node.runtime / 'vgpud.sock'}", who) for role, who in ROLES.items()}
        self.askers[UNKNOWN] = Asker(f"unix:{node.runtime / 'private' / 'vgpud.sock'}", "0:0")
        self.count = 0

    def ask(self, role: str, path: str, request: Any, deadline_s: float = 30.0) -> tuple[str, str, bytes]:
        method = RPCS[path]
        kind = "_".join("stream" if s else "unary" for s in (method.client_streaming, method.server_streaming))
        return self.askers[role].ask(path, kind, request, deadline_s)

    def call(self, role: str, name: str, request: Any) -> Any:
        """The answer of a call that is let through."""
        path = next(path for path in RPCS if path.endswith("/" + name))
        code, message, raw = self.ask(role, path, request)
        assert code == "OK", message
        return message_factory.GetMessageClass(RPCS[path].output_type).FromString(raw)

    def refusal(self, role: str, name: str, request: Any) -> str:
        path = next(path for path in RPCS if path.endswith("/" + name))
        code, message, _ = self.ask(role, path, request)
        assert code == "PERMISSION_DENIED", (code, message)
        assert "\n" not in message
        return message

    def create(self, role: str = "owner", **fields: Any) -> pb.Slice:
        self.count += 1
        spec = pb.SliceSpec(gpus_milli=10, **fields.pop("spec", {}))
        request = pb.CreateSliceRequest(name=f"s{self.count}", spec=spec, **fields)
        made: pb.Slice = self.call(role, "CreateSlice", request).slice
        return made

    def submit(self, role: str = "owner") -> int:
        spec = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=10), command=["true"], directory="/", hold=True)
        answer: pb.SubmitJobResponse = self.call(role, "SubmitJob", pb.SubmitJobRequest(spec=spec))
        return answer.job_ids[0]

    @contextlib.contextmanager
    def slice(self, role: str = "owner", **fields: Any) -> Iterator[pb.Slice]:
        made = self.create(role, **fields)
        try:
            yield made
        finally:
            for name in (made.name, f"{made.name}-x"):
                path, request = "/vgpud.v1alpha1.SliceService/DeleteSlice", pb.DeleteSliceRequest(name=name, force=True)
                assert self.ask("root", path, request)[0] in ("OK", "NOT_FOUND")

    def close(self) -> None:
        for asker in self.askers.values():
            asker.close()


@pytest.fixture(scope="module")
def all_of_them(fake_driver: Path) -> Iterator[AllRoles]:
    with own_node(fake_driver) as node:
        node.directory.chmod(0o755)
        node.settings = {"socket_mode": '"0666"', "admin_group": f'"{ADMIN_GROUP.gr_name}"'}
        node.settings["slices_per_user_max"] = str(SLICES_PER_USER_MAX)
        node.start()
        roles = AllRoles(node)
        yield roles
        roles.close()
        assert node.stop() == 0
        assert "Traceback" not in node.log.read_text()


@pytest.mark.parametrize(
    ("admin", "fields", "owner"),
    [(True, {}, 1000), (False, {}, 1000), (True, {"owner_uid": 0}, 0), (True, {"every_user": True}, ANYONE)],
)
def test_whose_a_slice_is(monkeypatch: pytest.MonkeyPatch, admin: bool, fields: dict[str, Any], owner: int) -> None:
    monkeypatch.setattr(server, "caller", lambda: Caller(1000, 1000, (), 1, admin))
    assert server._owner(pb.CreateSliceRequest(**fields)) == owner


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert set(METHODS) == set(RPCS)


@pytest.mark.parametrize("path", sorted(METHODS))
def test_rows_name_what_is_in_the_requests(path: str) -> None:
    row, method = METHODS[path], RPCS[path]
    fields = method.input_type.fields_by_name
    assert bool(row.field) == (row.who in (Who.SLICE_OWNER, Who.SLICE_USER, Who.JOB_OWNER))
    if row.field:
        assert not method.client_streaming, "a stream of requests names nothing"
        named = fields[row.field]
        job = row.who is Who.JOB_OWNER
        assert named.type == (descriptor.FieldDescriptor.TYPE_INT64 if job else descriptor.FieldDescriptor.TYPE_STRING)
    found = method.input_type
    for name in row.spec.split(".") if row.spec else ():
        found = found.fields_by_name[name].message_type
    assert not row.spec or found.name == "SliceSpec"
    asks = [f for f in fields.values() if f.message_type and f.message_type.name in ("SliceSpec", "JobSpec")]
    assert bool(asks) == bool(row.spec), "what users may ask for is bounded wherever they ask for it"


def authorize(row: Row | None, who: Caller, request: Any, site: Any) -> Denied | None:
    return asyncio.run(why_not(row, who, request, site))


def test_what_has_no_row_is_for_no_caller() -> None:
    class NoSite:
        pass

    admin = Caller(0, 0, (), 1, admin=True)
    denied = authorize(None, admin, None, NoSite())
    assert denied is not None
    assert authorize(Row(Who.ADMIN), admin, None, NoSite()) is None


def is_allowed(role: str, who: Who) -> bool:
    if role == UNKNOWN:
        return False
    return (
        role not in ("owner", "other")
        or {
            Who.EVERY_USER: True,
            Who.SLICE_OWNER: role == "owner",
            Who.SLICE_USER: role == "owner",
            Who.JOB_OWNER: role == "owner",
            Who.WORKER: role == "owner",
            Who.VIEWER: role == "owner",
            Who.SESSION_OWNER: role == "owner",
            Who.ADMIN: False,
        }[who]
    )


def request_of(path: str, slice_name: str, job_id: int) -> Any:
    """A request that names these, where it names any."""
    row = METHODS[path]
    request: Any = message_factory.GetMessageClass(RPCS[path].input_type)()
    if path.endswith(("/DrainDevice", "/UndrainDevice")):
        request.device_uuid = "0"
    if path.endswith("/CreateSlice"):
        request.name, request.spec.gpus_milli = slice_name + "-x", 10
    if row.who in NAMED_BY_STREAM:
        request.job_id = job_id
        if row.who is Who.VIEWER:
            request.as_admin = True
    elif row.who is Who.JOB_OWNER:
        if isinstance(getattr(request, row.field), int):
            setattr(request, row.field, job_id)
        else:
            getattr(request, row.field).append(job_id)
    elif row.field:
        setattr(request, row.field, slice_name)
    return request


@pytest.mark.parametrize("path", sorted(METHODS))
def test_the_table_alone_decides(path: str) -> None:
    """Whatever the services look at besides."""
    site: Any = SimpleNamespace(
        slice_owner=lambda name: OWNER if name == "s" else None,
        job_owner=lambda job_id: OWNER if job_id == 7 else None,
        user_limits=lambda: Limits(1000),
        job_priority_max=lambda: 0,
    )
    row = METHODS[path]
    for role, uid, admin in (("root", 0, True), ("owner", OWNER, False), ("other", OTHER, False)):
        who = Caller(uid, uid, (), 1, admin=admin)
        at_once = row.who in NAMED_BY_STREAM or is_allowed(role, row.who)
        assert (authorize(row, who, request_of(path, "s", 7), site) is None) == at_once, role
        if row.who is not Who.ADMIN:
            assert authorize(row, who, request_of(path, "none", 8), site) is None, "the method says that there is none"


def test_no_request_names_more_jobs_than_are_looked_up_at_once() -> None:
    site: Any = SimpleNamespace(job_owner=lambda job_id: OWNER)
    row, who = METHODS["/vgpud.v1alpha1.JobService/WatchJobs"], Caller(OWNER, OWNER, (), 1, admin=False)
    assert authorize(row, who, pb.WatchJobsRequest(job_ids=[7] * JOBS_NAMED_MAX), site) is None
    denied = authorize(row, who, pb.WatchJobsRequest(job_ids=[7] * (JOBS_NAMED_MAX + 1)), site)
    assert denied is not None and denied.message == "10001 jobs are named: at most 10000 are allowed"


@pytest.mark.parametrize(
    ("priority", "priority_max", "may"), [(0, 0, True), (-5, 0, True), (1, 0, False), (7, 7, True)]
)
def test_users_do_not_say_how_important_they_are(priority: int, priority_max: int, may: bool) -> None:
    path = next(path for path in METHODS if path.endswith("/SubmitJob"))
    site: Any = SimpleNamespace(user_limits=lambda: Limits(1000), job_priority_max=lambda: priority_max)
    request = pb.SubmitJobRequest(spec=pb.JobSpec(priority=priority))
    for uid, admin in ((0, True), (OWNER, False)):
        denied = authorize(METHODS[path], Caller(uid, uid, (), 1, admin=admin), request, site)
        assert (denied is None) == (may or admin)
        assert denied is None or "job_priority_max" in denied.message


@pytest.mark.parametrize("role", [*ROLES, UNKNOWN])
@pytest.mark.parametrize("path", sorted(METHODS))
def test_every_method_by_every_role(all_of_them: AllRoles, path: str, role: str) -> None:
    row = METHODS[path]
    job_id = all_of_them.submit() if row.who in (Who.JOB_OWNER, *NAMED_BY_STREAM) else 0
    with all_of_them.slice() as made:
        request = request_of(path, made.name, job_id)
        deadline_s = 0.5 if RPCS[path].server_streaming and is_allowed(role, row.who) else 30.0
        code, message, _ = all_of_them.ask(role, path, request, deadline_s)
        assert (code != "PERMISSION_DENIED") == is_allowed(role, row.who), (code, message)
        assert code not in ("UNKNOWN", "INTERNAL", "UNAVAILABLE"), message
        assert code != "UNIMPLEMENTED" or path in NOT_SERVED, message
        if not is_allowed(role, row.who):
            still = all_of_them.call("root", "GetSlice", pb.GetSliceRequest(name=made.name)).slice
            assert (still.uid, still.revision) == (made.uid, made.revision)


@pytest.mark.parametrize("role", [UNKNOWN, *ROLES])
def test_a_method_that_is_not_there(all_of_them: AllRoles, role: str) -> None:
    code, _, _ = all_of_them.askers[role].ask("/vgpud.v1alpha1.NodeService/Nope", "unary_unary", pb.GetNodeRequest())
    assert code == "UNIMPLEMENTED"


def test_only_the_api_is_open_to_every_user(all_of_them: AllRoles) -> None:
    modes = {name: (all_of_them.node.runtime / name).stat().st_mode & 0o777 for name in ("vgpud.sock", "runtime.sock")}
    assert modes == {"vgpud.sock": 0o666, "runtime.sock": 0o660}
    private = all_of_them.node.runtime / "private"
    assert private.stat().st_mode & 0o777 == 0o700
    assert (private / "vgpud.sock").stat().st_mode & 0o777 == 0o600


def names(all_of_them: AllRoles, role: str) -> set[str]:
    listed = {s.name for s in all_of_them.call(role, "ListSlices", pb.ListSlicesRequest()).slices}
    watched = all_of_them.call(role, "WatchSlices", pb.WatchSlicesRequest())
    assert {s.name for s in watched.slices} == listed
    assert len(watched.devices) == len(all_of_them.call(role, "ListDevices", pb.ListDevicesRequest()).devices) == 1
    return listed


def test_slices_are_shown_to_their_owners_and_admins(all_of_them: AllRoles) -> None:
    with (
        all_of_them.slice() as mine,
        all_of_them.slice("other") as others,
        all_of_them.slice("root", every_user=True) as opened,
    ):
        assert (mine.owner_uid, others.owner_uid, opened.HasField("owner_uid")) == (OWNER, OTHER, False)
        assert names(all_of_them, "owner") == {mine.name, opened.name}
        assert names(all_of_them, "other") == {others.name, opened.name}
        assert names(all_of_them, "root") == {mine.name, others.name, opened.name}
        assert names(all_of_them, "member of the admins' group") == {mine.name, others.name, opened.name}
        assert all_of_them.call("other", "GetSlice", pb.GetSliceRequest(name=opened.name)).slice.name == opened.name
        refusal = all_of_them.refusal("other", "DeleteSlice", pb.DeleteSliceRequest(name=opened.name, force=True))
        assert opened.name in refusal
        (device,) = all_of_them.call("other", "ListDevices", pb.ListDevicesRequest()).devices
        assert device.reserved_milli == 30  # of all, as a sum


def test_users_make_slices_for_themselves_and_within_bounds(all_of_them: AllRoles) -> None:
    spec = pb.SliceSpec(gpus_milli=10)
    for owner, named in (({"every_user": True}, "every_user"), ({"owner_uid": OTHER}, f"owner_uid {OTHER}")):
        request = pb.CreateSliceRequest(name="x", spec=spec, **owner)
        assert f"{named}: what" in all_of_them.refusal("owner", "CreateSlice", request)
    for owner in ({"owner_uid": OWNER, "every_user": True}, {"owner_uid": -1}, {"owner_uid": 1 << 32}):
        request = pb.CreateSliceRequest(spec=spec, **owner)
        code, message, _ = all_of_them.ask("root", "/vgpud.v1alpha1.SliceService/CreateSlice", request)
        assert (code, message.split()[0]) == ("INVALID_ARGUMENT", "owner_uid")
    with all_of_them.slice(owner_uid=OWNER) as made:
        assert made.owner_uid == OWNER
        for greedy in (
            pb.SliceSpec(gpus_milli=10, priority=1),
            pb.SliceSpec(gpus_milli=10, service_class=pb.SERVICE_CLASS_LATENCY),
        ):
            refusal = all_of_them.refusal("owner", "CreateSlice", pb.CreateSliceRequest(name="x", spec=greedy))
            assert "container_" in refusal
            all_of_them.refusal("owner", "UpdateSlice", pb.UpdateSliceRequest(name=made.name, spec=greedy))
            all_of_them.call("root", "UpdateSlice", pb.UpdateSliceRequest(name=made.name, spec=greedy))
        all_of_them.call("owner", "UpdateSlice", pb.UpdateSliceRequest(name=made.name, spec=spec))


def test_jobs_and_their_accounts_are_shown_to_their_owners_and_admins(all_of_them: AllRoles) -> None:
    mine, others = all_of_them.submit(), all_of_them.submit("other")
    for role, seen, hidden in (("owner", mine, others), ("other", others, mine)):
        listed = {job.job_id for job in all_of_them.call(role, "ListJobs", pb.ListJobsRequest(include_ended=True)).jobs}
        assert seen in listed
        assert hidden not in listed
        watched = {job.job_id for job in all_of_them.call(role, "WatchJobs", pb.WatchJobsRequest()).jobs}
        assert seen in watched
        assert hidden not in watched
        assert str(hidden) in all_of_them.refusal(role, "WatchJobs", pb.WatchJobsRequest(job_ids=[seen, hidden]))
        uids = {row.uid for row in all_of_them.call(role, "GetUsage", pb.GetUsageRequest(by=pb.USAGE_BY_JOB)).usage}
        assert uids <= {OWNER if role == "owner" else OTHER}
    for admin in ("root", "member of the admins' group"):
        listed = {
            job.job_id for job in all_of_them.call(admin, "ListJobs", pb.ListJobsRequest(include_ended=True)).jobs
        }
        assert {mine, others} <= listed
    greedy = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=10, priority=1), command=["true"], directory="/", hold=True)
    assert "container_priority_max" in all_of_them.refusal("owner", "SubmitJob", pb.SubmitJobRequest(spec=greedy))


class Garbage:
    """In place of a request."""

    def SerializeToString(self) -> bytes:
        return b"\xff\xff\xff"


@pytest.mark.parametrize("path", sorted(set(METHODS) - NOT_SERVED))
def test_bytes_that_are_no_request_are_the_callers_mistake(all_of_them: AllRoles, path: str) -> None:
    code, said, _ = all_of_them.ask("root", path, Garbage())
    assert code == "INVALID_ARGUMENT", (code, said)
    assert "the request's 3 bytes are not this method's message" in said


def test_two_users_may_use_the_same_request_id(all_of_them: AllRoles) -> None:
    spec = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=10), command=["true"], directory="/", hold=True)
    request = pb.SubmitJobRequest(request_id="the-same", spec=spec)
    first, second = (all_of_them.call(role, "SubmitJob", request).job_ids for role in ("owner", "other"))
    assert first != second
    assert all_of_them.call("owner", "SubmitJob", request).job_ids == first
    request.spec.name = "another"
    code, said, _ = all_of_them.ask("owner", "/vgpud.v1alpha1.JobService/SubmitJob", request)
    assert code == "INVALID_ARGUMENT"
    assert f"'the-same' made job {first[0]} with another specification" in said
    names = []
    for role in ("owner", "other"):
        made = pb.CreateSliceRequest(request_id="the-same", name=f"same-{role}", spec=pb.SliceSpec(gpus_milli=10))
        names += [all_of_them.call(role, "CreateSlice", made).slice.name for _ in range(2)]
        gone = pb.DeleteSliceRequest(request_id=f"{role}-gone", name=f"same-{role}")
        for _ in range(2):
            all_of_them.call(role, "DeleteSlice", gone)
    assert names == ["same-owner", "same-owner", "same-other", "same-other"]


def test_a_user_cannot_have_all_the_watches(all_of_them: AllRoles) -> None:
    path = "/vgpud.v1alpha1.EventService/WatchEvents"
    service, count = Watching(), WATCHERS_PER_USER_MAX
    for _ in range(count):
        assert not service._why_no_more(False, OWNER)
        service._watchers[False, OWNER] += 1
    assert f"{count} watches of uid {OWNER} are open" in service._why_no_more(False, OWNER)
    assert not service._why_no_more(False, OTHER)
    for uid in range(WATCHERS_MAX // count):
        service._watchers[False, uid] = count
    assert "users have" in service._why_no_more(False, OTHER)
    assert not service._why_no_more(True, 0)
    with all_of_them.slice("other"):
        pass  # so that there is something to tell
    for role in ("other", "root"):  # they end when the caller has gone
        for _ in range(2 * count):
            assert all_of_them.ask(role, path, pb.WatchEventsRequest())[0] == "OK"


def test_a_user_cannot_have_all_the_slices(all_of_them: AllRoles) -> None:
    with contextlib.ExitStack() as made:
        for _ in range(SLICES_PER_USER_MAX):
            made.enter_context(all_of_them.slice())
        request = pb.CreateSliceRequest(name="more", spec=pb.SliceSpec(gpus_milli=1))
        code, said, _ = all_of_them.ask("owner", "/vgpud.v1alpha1.SliceService/CreateSlice", request)
        assert code == "RESOURCE_EXHAUSTED"
        assert f"uid {OWNER} has {SLICES_PER_USER_MAX} slices" in said
        made.enter_context(all_of_them.slice("other"))
        made.enter_context(all_of_them.slice("root", owner_uid=OWNER))


def list_event_kinds(all_of_them: AllRoles, role: str, slice_name: str) -> list[str]:
    events = all_of_them.call(role, "ListEvents", pb.ListEventsRequest()).events
    return [event.kind for event in events if event.slice == slice_name]


def test_events_are_shown_to_the_slices_owner_also_when_it_is_gone(all_of_them: AllRoles) -> None:
    with all_of_them.slice() as made:
        pass
    both = ["slice.created", "slice.deleted"]
    assert list_event_kinds(all_of_them, "owner", made.name) == list_event_kinds(all_of_them, "root", made.name) == both
    assert list_event_kinds(all_of_them, "other", made.name) == []
    again = pb.CreateSliceRequest(name=made.name, spec=pb.SliceSpec(gpus_milli=10))
    all_of_them.call("other", "CreateSlice", again)  # another's, of the same name
    assert list_event_kinds(all_of_them, "other", made.name) == ["slice.created"]
    assert list_event_kinds(all_of_them, "owner", made.name) == both
    all_of_them.call("other", "DeleteSlice", pb.DeleteSliceRequest(name=made.name))
    assert list_event_kinds(all_of_them, "other", made.name) == both
    first = all_of_them.call("other", "WatchEvents", pb.WatchEventsRequest()).event
    listed = all_of_them.call("other", "ListEvents", pb.ListEventsRequest()).events
    assert first == listed[0]


def test_processes_are_shown_to_the_slices_owner_and_their_own_user(all_of_them: AllRoles) -> None:
    def list_uids(role: str) -> list[int]:
        return [p.uid for p in all_of_them.call(role, "ListProcesses", pb.ListProcessesRequest()).processes]

    with all_of_them.slice() as mine, all_of_them.slice("root", every_user=True) as opened:
        tenants = []
        for name, uid in ((mine.name, OWNER), (opened.name, OTHER)):
            script = [sys.executable, client.__file__, all_of_them.node.socket(name)]
            env = os.environ | {"AS": f"{uid}:{uid}"}
            tenants.append(subprocess.Popen(script, env=env, stdout=subprocess.PIPE, text=True))
            assert tenants[-1].stdout
            assert tenants[-1].stdout.readline() == "0\n"
        assert sorted(list_uids("root")) == [OWNER, OTHER]
        assert list_uids("owner") == [OWNER]
        assert list_uids("other") == [OTHER]
        for tenant in tenants:
            tenant.kill()
            tenant.communicate()


def test_why_a_driver_cannot_publish_is_for_admins(all_of_them: AllRoles) -> None:
    said = pb.Publication(pool="n1", generation=3, problem="https://10.0.0.1:6443 refuses")
    all_of_them.call("root", "ReportPublication", pb.ReportPublicationRequest(publication=said))
    request = pb.GetPublicationRequest()
    for role in ("root", "member of the admins' group"):
        assert "10.0.0.1" in all_of_them.call(role, "GetPublication", request).publication.problem
    shown = all_of_them.call("other", "GetPublication", request).publication
    assert (shown.pool, shown.generation) == ("n1", 3) and "10.0.0.1" not in shown.problem


def test_the_table_in_the_documentation_is_this_one() -> None:
    text = (Path(__file__).parents[2] / "docs/security/api.md").read_text()
    rows = {
        f"| `{service.rpartition('.')[2]}/{method}` | {row.who.value} | {row.shows or '-'} |"
        for (service, _, method), row in ((path.rpartition("/"), row) for path, row in METHODS.items())
    }
    documented_rows = {
        line for line in text.splitlines() if line.startswith("| `") and "Service/" in line.split("|")[1]
    }
    documented_rows |= {line for line in text.splitlines() if line.startswith(("| `Health/", "| `ServerReflection/"))}
    assert documented_rows == rows


def test_a_user_has_only_so_many_streams_of_whatever_service() -> None:
    """Also of those that are not ours: health and reflection bound nothing."""

    class Context:
        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return ()

        def peer(self) -> str:
            return ""

        async def abort(self, code: grpc.StatusCode, text: str, _trailing: object) -> None:
            raise PermissionError(f"{code.name}: {text}")

    async def run() -> None:
        done = asyncio.Event()

        async def watch(request: object, context: object) -> None:
            await done.wait()

        async def handler(details: object) -> Any:
            return grpc.unary_stream_rpc_method_handler(watch, bytes, bytes)

        authorizer = Authorizer(SimpleNamespace(), lambda address: Peer(OWNER, OWNER, (), 0, 0))  # type: ignore[arg-type]
        details = SimpleNamespace(method="/grpc.health.v1.Health/Watch")
        guarded = (await authorizer.intercept_service(handler, details)).unary_stream
        open_ones = [asyncio.create_task(guarded(b"", Context())) for _ in range(STREAMS_PER_USER_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(PermissionError, match="RESOURCE_EXHAUSTED: 128 streams of uid"):
            await guarded(b"", Context())
        done.set()
        await asyncio.gather(*open_ones)
        await guarded(b"", Context())

    asyncio.run(run())
