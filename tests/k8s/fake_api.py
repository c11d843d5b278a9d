"""An API server in a thread: nodes, ResourceSlices and ResourceClaims, as far as the driver uses them.

It has what tripped drivers of others: watches, versions that conflict (409), generated names, fields that a disabled
feature gate drops without a word, quantities in their shortest form, and a server that is not there for a while.
"""

from __future__ import annotations

import copy
import http.server
import json
import re
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any

GROUP = "/apis/resource.k8s.io/v1"
SLICES = f"{GROUP}/resourceslices"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class FakeApi:
    """Use as a context manager. objects: by path. writes: (verb, path) of every changing request."""

    def __init__(self, dropped_fields: Iterable[str] = ()) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str]] = []
        self.reads: list[str] = []
        self.dropped_fields = set(dropped_fields)
        self.broken = False
        self.version = "v1.36.2"
        self.has_no_paths = False  # what is not there is unknown as a path, as while a server starts
        self.token = ""  # that every request must bring
        self.forgotten_version = 0  # versions up to this one: a watch of what came after them is answered with "gone"
        self.watches = 0
        self._version = 1
        self._log: list[tuple[int, str, dict[str, Any]]] = []
        self._changed = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeApi:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # ---- what tests do ----

    def put(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Stores an object as some other client would."""
        with self._changed:
            kind = "MODIFIED" if path in self.objects else "ADDED"
            return self._store(path, copy.deepcopy(manifest), kind)

    def remove(self, path: str) -> None:
        with self._changed:
            gone = self.objects.pop(path, None)
            if gone is not None:
                self._version += 1
                gone["metadata"]["resourceVersion"] = str(self._version)
                self._note("DELETED", gone)

    def add_node(self, name: str) -> None:
        self.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name, "uid": str(uuid.uuid4())}})

    def slices(self) -> list[dict[str, Any]]:
        with self._changed:
            return [copy.deepcopy(one) for path, one in sorted(self.objects.items()) if path.startswith(SLICES)]

    def claim_path(self, namespace: str, name: str) -> str:
        return f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}"

    # ---- storage; the lock is held ----

    def _store(self, path: str, manifest: dict[str, Any], kind: str) -> dict[str, Any]:
        self._version += 1
        metadata = manifest.setdefault("metadata", {})
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata["resourceVersion"] = str(self._version)
        self.objects[path] = self._as_stored(manifest)
        self._note(kind, self.objects[path])
        return copy.deepcopy(self.objects[path])

    def _as_stored(self, field: Any) -> Any:
        if isinstance(field, dict):
            return {key: self._as_stored(value) for key, value in field.items() if key not in self.dropped_fields}
        if isinstance(field, list):
            return [self._as_stored(value) for value in field]
        if isinstance(field, str) and field.isdigit() and field.endswith("000") and len(field) > 3:
            return f"{field[:-3]}k"  # as the server shortens quantities
        return field

    def _find_refusal(self, manifest: dict[str, Any]) -> str:
        """Before 1.35 a counter that a device consumes had to be in the device's own ResourceSlice."""
        spec = manifest.get("spec", {})
        known = {one["name"] for one in spec.get("sharedCounters", [])}
        used = {one["counterSet"] for device in spec.get("devices", []) for one in device.get("consumesCounters", [])}
        is_old = self.version.startswith("v1.34.")
        return "spec.devices[0].consumesCounters[0].counterSet: Not found" if is_old and used - known else ""

    def _note(self, kind: str, one: dict[str, Any]) -> None:
        self._log.append((self._version, kind, copy.deepcopy(one)))
        self._changed.notify_all()

    # ---- requests ----

    def create(self, path: str, manifest: dict[str, Any]) -> tuple[int, Any]:
        with self._changed:
            if wrong := self._find_refusal(manifest):
                return 422, status(422, wrong)
            metadata = manifest["metadata"]
            # as a real one: what it is a prefix of must be a name
            if not _SUBDOMAIN.fullmatch(metadata.get("name") or re.sub("-$", "a", metadata["generateName"])):
                return 422, status(422, f"metadata.generateName: Invalid value: {metadata}")
            name = metadata.get("name") or metadata["generateName"] + uuid.uuid4().hex[:5]
            metadata["name"] = name
            self.writes.append(("create", f"{path}/{name}"))
            return 201, self._store(f"{path}/{name}", manifest, "ADDED")

    def replace(self, path: str, manifest: dict[str, Any]) -> tuple[int, Any]:
        with self._changed:
            old = self.objects.get(path)
            if old is None:
                return 404, status(404, "not found")
            if manifest["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
                return 409, status(409, "the object has been modified")
            if wrong := self._find_refusal(manifest):
                return 422, status(422, wrong)
            self.writes.append(("replace", path))
            return 200, self._store(path, manifest, "MODIFIED")

    def patch(self, path: str, manifest: dict[str, Any]) -> tuple[int, Any]:
        with self._changed:
            base = path.removesuffix("/status")
            if base not in self.objects:
                return 404, status(404, "not found")
            self.writes.append(("patch", path))
            kept = self.objects[base].setdefault("status", {})
            drivers = {one["driver"] for one in manifest["status"]["devices"]}
            others = [one for one in kept.get("devices", []) if one["driver"] not in drivers]
            kept["devices"] = [*others, *manifest["status"]["devices"]]
            return 200, copy.deepcopy(self.objects[base])

    def delete(self, path: str) -> tuple[int, Any]:
        known = path in self.objects
        self.writes.append(("delete", path))
        self.remove(path)
        return (200, status(200, "deleted")) if known else (404, status(404, "not found"))

    def get(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        with self._changed:
            self.reads.append(path)
            if path == "/version":
                return (200, {"gitVersion": self.version}) if self.version else (403, status(403, "forbidden"))
            if path in self.objects:
                return 200, copy.deepcopy(self.objects[path])
            if path == SLICES:
                found = [one for key, one in self.objects.items() if key.startswith(SLICES) and is_selected(one, query)]
                return 200, {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": found}
            if self.has_no_paths:
                return 404, status(404, "the server could not find the requested resource")
            resource, name = path.split("/")[-2:]
            return 404, status(404, f"{path} not found") | {"details": {"kind": resource, "name": name}}

    def changes(self, query: dict[str, str], until_s: float) -> Iterable[dict[str, Any]]:
        """Watch events after a version, for a while."""
        after = int(query.get("resourceVersion") or 0)
        self.watches += 1
        if after < self.forgotten_version:
            yield {"type": "ERROR", "object": status(410, "too old resource version")}
            return
        while time.monotonic() < until_s and not self.broken:
            with self._changed:
                found = [(v, kind, one) for v, kind, one in self._log if v > after and is_selected(one, query)]
                if not found:
                    self._changed.wait(0.1)
            for version, kind, one in found:
                after = version
                yield {"type": kind, "object": one}


def is_selected(one: dict[str, Any], query: dict[str, str]) -> bool:
    wanted = dict(part.split("=", 1) for part in query.get("fieldSelector", "").replace("==", "=").split(",") if part)
    spec = one.get("spec", {})
    return bool(spec) and all(spec.get(name.removeprefix("spec.")) == value for name, value in wanted.items())


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "status": "Failure"}


def _handler(api: FakeApi) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes

        def _begin(self) -> tuple[str, dict[str, str], Any]:
            parsed = urllib.parse.urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            return parsed.path, dict(urllib.parse.parse_qsl(parsed.query)), body

        def _answer(self, code: int, body: Any) -> None:
            if api.broken:
                code, body = 503, status(503, "the server is not there")
            elif not self._is_known():
                code, body = 401, status(401, "Unauthorized")
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _is_known(self) -> bool:
            return not api.token or self.headers.get("Authorization") == f"Bearer {api.token}"

        def do_GET(self) -> None:
            path, query, _ = self._begin()
            if query.get("watch") in ("true", "1") and not api.broken and self._is_known():
                self._watch(query)
            else:
                self._answer(*api.get(path, query))

        def _watch(self, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for change in api.changes(query, time.monotonic() + 60):
                    self.wfile.write(json.dumps(change).encode() + b"\n")
                    self.wfile.flush()
            except OSError:
                pass  # the client has gone

        def do_POST(self) -> None:
            path, _, body = self._begin()
            self._answer(*api.create(path, body) if not api.broken else (503, None))

        def do_PUT(self) -> None:
            path, _, body = self._begin()
            self._answer(*api.replace(path, body) if not api.broken else (503, None))

        def do_PATCH(self) -> None:
            path, _, body = self._begin()
            self._answer(*api.patch(path, body) if not api.broken else (503, None))

        def do_DELETE(self) -> None:
            path, _, _ = self._begin()
            self._answer(*api.delete(path) if not api.broken else (503, None))

        def log_message(self, *_args: Any) -> None:
            """Nothing is printed."""

    return Handler
