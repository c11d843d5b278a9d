"""The API server: reads claims, keeps this node's ResourceSlices and the status of claims.

Objects stay plain dictionaries: typed models would drop fields that they do not know, and with them what an API server
of another version has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from typing import Any

from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from vgpud.k8s.core.events import ClaimRead, PoolSeen, Published, StatusWritten
from vgpud.k8s.core.model import Ref
from vgpud.k8s.core.names import API, DRIVER
from vgpud.k8s.core.published import Changes, Write, generate_name, not_stored

log = logging.getLogger("vgpud.k8s")

_GROUP, _VERSION = API.split("/")
Claim = create_namespaced_resource(_GROUP, _VERSION, "ResourceClaim", "resourceclaims")
Slice = create_global_resource(_GROUP, _VERSION, "ResourceSlice", "resourceslices")
Node = create_global_resource("", "v1", "Node", "nodes")
#: a call that takes longer has failed: kubelet waits 45 s for the whole of an answer
CALL_S = 10.0
#: between attempts to watch
AGAIN_S = 1.0
_NOT_FOUND = 404


def reason_of(error: BaseException) -> str:
    """One line about a failed call."""
    text = str(error).split("\n")[0].strip() or type(error).__name__
    return text[:300]


class ApiServer:
    """The calls that the driver makes. None of them raises."""

    def __init__(self, client: AsyncClient, node: str) -> None:
        self._client = client
        self._node = node
        self._owner: dict[str, Any] | None = None

    async def read_claim(self, ref: Ref) -> ClaimRead:
        try:
            found = await self._call(self._client.get(Claim, ref.name, namespace=ref.namespace))
        except ApiError as error:
            missing = error.response.status_code == _NOT_FOUND
            return ClaimRead(ref.uid) if missing else ClaimRead(ref.uid, error=reason_of(error))
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

    # ---- ResourceSlices ----

    async def publish(self, changes: Changes) -> Published:
        """Writes, then deletes."""
        dropped: dict[str, None] = {}
        try:
            owner = await self._owner_reference()
            for write in changes.writes:
                written = await self._call(self._write(write, owner))
                dropped |= dict.fromkeys(not_stored(write.spec, written.get("spec")))
            for name in changes.deletions:
                await self._delete(name)
        except Exception as error:
            self._owner = None  # the node object may have been created again
            return Published(error=reason_of(error))
        return Published(tuple(dropped))

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
            if error.response.status_code != _NOT_FOUND:
                raise

    async def _owner_reference(self) -> dict[str, Any]:
        """The node, so that its ResourceSlices go with it."""
        if self._owner is None:
            node = await self._call(self._client.get(Node, self._node))
            uid = node["metadata"]["uid"]
            self._owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}
        return self._owner

    async def watch_pool(self, seen: Callable[[PoolSeen], None]) -> None:
        """Reports all ResourceSlices of this node and driver, now and after each change, for ever."""
        fields: dict[str, Any] = {"spec.driver": DRIVER, "spec.nodeName": self._node}
        while True:
            try:
                found = self._client.list(Slice, fields=fields)
                there = {str(one["metadata"]["name"]): dict(one) async for one in found}
                seen(PoolSeen(tuple(there.values())))
                async for change, one in self._changes(fields, found.resourceVersion):
                    name = str(one["metadata"]["name"])
                    there.pop(name, None)
                    if change != "DELETED":
                        there[name] = dict(one)
                    seen(PoolSeen(tuple(there.values())))
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the server has gone, or the version is too old: everything is read again
                log.info("the ResourceSlices cannot be watched: %s", reason_of(error))
            await asyncio.sleep(AGAIN_S)

    def _changes(self, fields: dict[str, Any], version: str) -> AsyncIterable[tuple[str, Any]]:
        return self._client.watch(Slice, fields=fields, resource_version=version, server_timeout=300)

    @staticmethod
    async def _call(call: Any) -> Any:
        return await asyncio.wait_for(call, CALL_S)
