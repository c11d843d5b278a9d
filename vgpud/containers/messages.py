"""Messages of the runtime socket: requests of vgpu-runtime, validated, and replies. No IO.

Both ways a line with the protocol and its version, lines `key value`, an empty line, the body (shim/runtime/wire.c).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

PROTOCOL = b"vgpu-runtime 1"
HEADER_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 4 << 20
STEP_BEGIN, STEP_END = "step-begin", "step-end"  # of Slurm jobs
OPERATIONS = ("create", "started", "stopped", STEP_BEGIN, STEP_END)
PASS, CONFIG, OK, REFUSED = "pass", "config", "ok", "refused"


class WireError(ValueError):
    """An invalid request; the text says why."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a request. `front`: host path of vgpu-runtime, for hooks."""

    operation: str
    container_id: str
    bundle: str
    front: str
    body_bytes: int


@dataclass(frozen=True, slots=True)
class OciState:
    """The state that an OCI runtime passes to its hooks (runtime-spec, state)."""

    container_id: str
    pid: int
    bundle: str


def split(raw: bytes) -> tuple[bytes, bytes] | None:
    """(header, beginning of the body) once the header is complete. Raises WireError if it is invalid."""
    head, end, body = raw.partition(b"\n\n")
    if end and len(head) <= HEADER_BYTES_MAX:
        return head, body
    if len(head) > HEADER_BYTES_MAX:
        raise WireError(f"the header is longer than {HEADER_BYTES_MAX} bytes")
    return None


def parse_header(head: bytes) -> Header:
    """The header's lines. Raises WireError. Unknown keys, of a newer vgpu-runtime, are ignored."""
    first, _, rest = head.partition(b"\n")
    if first != PROTOCOL:
        said = ascii(first[:40].decode(errors="replace"))
        raise WireError(f"{said} is not {PROTOCOL.decode()!r}: use vgpu-runtime and vgpud of one release")
    try:
        lines = [line.partition(" ") for line in rest.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise WireError("the header is not UTF-8") from error
    given = {key: value for key, _, value in lines}
    operation, length = given.get("op", ""), given.get("body", "")
    if operation not in OPERATIONS:
        raise WireError(f"op {operation[:40]!r} is not one of {', '.join(OPERATIONS)}")
    if not (length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= BODY_BYTES_MAX):
        raise WireError(f"body {length[:40]!r} is not a length up to {BODY_BYTES_MAX}")
    bundle, front = given.get("bundle", ""), given.get("self", "")
    if operation == "create" and not (bundle.startswith("/") and "\0" not in bundle):
        raise WireError(f"bundle {bundle[:80]!r} is not an absolute path")
    return Header(operation, given.get("id", ""), bundle, front, int(length))


def parse_state(body: bytes) -> OciState:
    """Parses the state that a hook was given. Raises WireError."""
    try:
        state = json.loads(body)
        made = OciState(str(state["id"]), int(state.get("pid", 0)), str(state["bundle"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError("the body is not a container's state") from error
    if not made.bundle.startswith("/") or "\0" in made.bundle or made.pid < 0:
        raise WireError(
            "the body is not a container's state: its bundle is not an absolute path, or its pid not a number"
        )
    return made


def reply(status: str, body: bytes = b"") -> bytes:
    """A reply; `body`: the new config.json, or for a refusal one line of text."""
    return b"%s\nstatus %s\nbody %d\n\n%s" % (PROTOCOL, status.encode(), len(body), body)


def refusal(text: str) -> bytes:
    """A reply that refuses, as one printable line."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return reply(REFUSED, line.encode(errors="replace"))
