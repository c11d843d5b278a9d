"""The API server: reads claims, keeps this node's ResourceSlices and the status of claims.

Objects stay plain dictionaries: typed models would drop fields that they do not know, and with them what an API server
of another version has.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

from lightkube import ApiError, AsyncClient
from lightkube.config import client_adapter
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from vgpud.k8s.core.events import ClaimRead, PoolSeen, Published, Report, StatusWritten
from vgpud.k8s.core.model import Ref
from vgpud.k8s.core.names import API, DRIVER
from vgpud.k8s.core.published import Changes, Write, generate_name, generation, not_stored

log = logging.getLogger("vgpud.k8s")

_GROUP, _VERSION = API.split("/")
_CLAIMS = "resourceclaims"
Claim = create_namespaced_resource(_GROUP, _VERSION, "ResourceClaim", _CLAIMS)
Slice = create_global_resource(_GROUP, _VERSION, "ResourceSlice", "resourceslices")
Node = create_global_resource("", "v1", "Node", "nodes")
Event = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
#: API versions of what Events are about
_API_OF = {"ResourceClaim": API, "Pod": "v1"}
#: a call that takes longer has failed: kubelet waits 45 s for the whole of an answer
CALL_S = 10.0
#: between attempts to watch: the first, and the longest. An API server that comes back has many nodes waiting for it
AGAIN_S, AGAIN_MAX_S = 1.0, 10.0
#: a watch that was silent for so long is opened again, since a connection whose other end has gone is silent, too; not
#: by all nodes at the same time
WATCH_S = (240.0, 360.0)
#: of what /version says: "v1.34.1", "v1.35.2-gke.100"
_VERSION_TEXT = re.compile(r'"gitVersion": *"v?([0-9]{1,3})\.([0-9]{1,3})')
_UNAUTHORIZED, _NOT_FOUND, _GONE = 401, 404, 410


def reason_of(error: BaseException) -> str:
    """One line about a failed call."""
    text = str(error).split("\n")[0].strip() or type(error).__name__
    return text[:300]


def _code(error: BaseException) -> int:
    """HTTP's code of a failed call; 0 when there was no answer."""
    return int(error.status.code or 0) if isinstance(error, ApiError) else 0


def _is_gone(error: ApiError, ref: Ref) -> bool:
    """Whether the API server has said that there is no such claim. A server that is starting, or something before it,
    may not find the path, and then a claim's slice must not be ended."""
    details = error.status.details
    found = (details.kind, details.name) if details else ()
    return _code(error) == _NOT_FOUND and found == (_CLAIMS, ref.name)


def _is_identity(error: BaseException | None) -> bool:
    """Whether certificates or a token were refused: they are replaced on disk now and then."""
    seen = 0
    while error is not None and seen < 8:
        if isinstance(error, ssl.SSLError) or _code(error) == _UNAUTHORIZED:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


class ApiServer:
    """The calls that the driver makes. None of them raises.

    connect: makes a client of what is on disk. A service account's token is read again by the client itself when the
    server refuses it; for certificates, and tokens in a kubeconfig, a new client is made.
    """

    def __init__(self, connect: Callable[[], AsyncClient], node: str) -> None:
        self._connect = connect
        self._client = connect()
        self._former: AsyncClient | None = None  # calls may still be under way
        self._node = node

    async def close(self) -> None:
        for client in filter(None, (self._former, self._client)):
            await client.close()

    async def _renew(self) -> None:
        try:
            client = self._connect()
        except Exception as error:
            log.warning("cannot connect to the API server: %s", reason_of(error))
            return
        if self._former is not None:
            await self._former.close()
        self._former, self._client = self._client, client

    async def read_claim(self, ref: Ref) -> ClaimRead:
        try:
            found = await self._call(self._client.get(Claim, ref.name, namespace=ref.namespace))
        except ApiError as error:
            return ClaimRead(ref.uid) if _is_gone(error, ref) else ClaimRead(ref.uid, error=reason_of(error))
        except Exception as error:
            return ClaimRead(ref.uid, error=reason_of(error))
        return ClaimRead(ref.uid, dict(found))

    async def write_status(self, ref: Ref, devices: list[dict[str, Any]]) -> StatusWritten:
        """Into status.devices, beside other drivers' entries."""
        body = {"apiVersion": API, "kind": "ResourceClaim", "status": {"devices": devices}}
        body["metadata"] = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
        patch = self._client.patch(
            Claim.Status,
            ref.name,
            body,
            namespace=ref.namespace,
            patch_type=PatchType.APPLY,
            field_manager=f"vgpud-{self._node}"[:128],
            force=True,
        )
        try:
            await self._call(patch)
        except Exception as error:
            return StatusWritten(ref.uid, reason_of(error))
        return StatusWritten(ref.uid)

    async def write_event(self, report: Report, now: str) -> None:
        """An Event, which is worth no second try: the log has what it says. now: as the API writes times."""
        subject = report.subject
        regarding = {"apiVersion": _API_OF[report.kind], "kind": report.kind, "namespace": subject.namespace}
        body = {
            "metadata": {"generateName": f"{subject.name[:200].rstrip('.-')}-", "namespace": subject.namespace},
            "eventTime": now,
            "reportingController": DRIVER,
            "reportingInstance": self._node[:128],
            "action": "PrepareClaim",
            "reason": report.reason,
            "type": "Warning" if report.is_warning else "Normal",
            "note": report.note,
            "regarding": {**regarding, "name": subject.name, "uid": subject.uid},
        }
        try:
            event: Any = Event.from_dict(body)
            await self._call(self._client.create(event))
        except Exception as error:
            log.debug("the Event %s of %s %s could not be written: %s", report.reason, report.kind, subject, error)

    # ---- ResourceSlices ----

    async def publish(self, changes: Changes) -> Published:
        """Writes, then deletes."""
        dropped: dict[str, None] = {}
        stored: dict[str, int] = {}
        try:
            owner = await self._owner_reference()
            for write in changes.writes:
                written = await self._call(self._write(write, owner))
                stored[str(written["metadata"]["name"])] = generation(written)
                dropped |= dict.fromkeys(not_stored(write.spec, written.get("spec")))
            for name in changes.deletions:
                await self._delete(name)
        except Exception as error:
            return Published(error=reason_of(error), written_generations=tuple(stored.items()))
        return Published(tuple(dropped), written_generations=tuple(stored.items()))

    async def _write(self, write: Write, owner: dict[str, Any]) -> Any:
        metadata: dict[str, Any] = {"ownerReferences": [owner]}
        if write.name:
            metadata |= {"name": write.name, "resourceVersion": await self._version(write.name)}
        else:
            metadata["generateName"] = generate_name(write.index, self._node)
        body = Slice.from_dict({"apiVersion": API, "kind": "ResourceSlice", "metadata": metadata, "spec": write.spec})
        return await (self._client.replace(body) if write.name else self._client.create(body))

    async def _version(self, name: str) -> str:
        found = await self._client.get(Slice, name)
        return str(found["metadata"]["resourceVersion"])

    async def _delete(self, name: str) -> None:
        try:
            await self._call(self._client.delete(Slice, name))
        except ApiError as error:
            if _code(error) != _NOT_FOUND:
                raise

    async def clear_pool(self) -> str:
        """Deletes this node's ResourceSlices, on clusters that have such objects. Returns why not, or ""."""
        fields: dict[str, Any] = {"spec.driver": DRIVER, "spec.nodeName": self._node}
        try:
            for name in await self._call(_by_name(self._client.list(Slice, fields=fields))):
                await self._delete(name)
        except Exception as error:
            if _is_identity(error):
                await self._renew()
            return "" if _code(error) == _NOT_FOUND else reason_of(error)
        return ""

    async def _owner_reference(self) -> dict[str, Any]:
        """The node, so that its ResourceSlices go with it. Read each time: those of a node that was deleted and joined
        again would be collected as garbage, over and over."""
        node = await self._call(self._client.get(Node, self._node))
        uid = node["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}

    async def watch_pool(self, post: Callable[[PoolSeen], None]) -> None:
        """Reports all ResourceSlices of this node and driver, now and after each change, for ever. An outage is two
        lines of the log, however long it is."""
        failures, reported_reason = 0, ""
        while True:
            try:
                async for event in self._pools():
                    if failures:
                        log.info("the API server answers again")
                    failures, reported_reason = 0, ""
                    post(event)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failures += _code(error) != _GONE  # the server has forgotten this version: all is read again
                if failures and reported_reason != (reported_reason := reason_of(error)):
                    log.warning("the ResourceSlices cannot be watched, which is tried again: %s", reported_reason)
                if _is_identity(error):
                    await self._renew()
            await asyncio.sleep(random.uniform(0.5, 1) * min(AGAIN_S * 2 ** min(failures, 8), AGAIN_MAX_S))

    async def _pools(self) -> AsyncIterator[PoolSeen]:
        """A list, and what a watch makes of it, until either fails."""
        fields: dict[str, Any] = {"spec.driver": DRIVER, "spec.nodeName": self._node}
        found = self._client.list(Slice, fields=fields)
        there: dict[str, Any] = await self._call(_by_name(found))
        yield PoolSeen(tuple(there.values()), is_from_list=True, server=await self._call(self._server_version()))
        version = found.resourceVersion
        while True:
            silent_s = random.uniform(*WATCH_S)
            changes = self._client.watch(Slice, fields=fields, resource_version=version, server_timeout=int(WATCH_S[1]))
            stream = aiter(changes)
            try:
                while True:
                    change, one = await asyncio.wait_for(anext(stream), silent_s)
                    name, version = str(one["metadata"]["name"]), str(one["metadata"]["resourceVersion"])
                    there.pop(name, None)
                    if change != "DELETED":
                        there[name] = dict(one)
                    yield PoolSeen(tuple(there.values()))
            except asyncio.TimeoutError:
                log.debug("the watch of ResourceSlices is opened again")

    async def _server_version(self) -> tuple[int, int] | None:
        """Major and minor, None when the server does not say. lightkube has objects alone, so this is a client of its
        own, with the same identity. The server may be another one after each outage."""
        parameters = client_adapter.ConnectionParams(trust_env=False)
        async with client_adapter.AsyncClient(self._client.config, parameters) as http:
            answer = await http.get("/version")
        if answer.is_server_error:
            answer.raise_for_status()
        found = _VERSION_TEXT.search(answer.text) if answer.is_success else None
        return (int(found.group(1)), int(found.group(2))) if found else None

    @staticmethod
    async def _call(call: Any) -> Any:
        return await asyncio.wait_for(call, CALL_S)


async def _by_name(objects: AsyncIterable[Any]) -> dict[str, Any]:
    return {str(one["metadata"]["name"]): dict(one) async for one in objects}
