"""What a row of the database must be like to be believed: types, checksums, and numbers that make sense.

Each check returns why a row is not believed, in a few words without its content: a row may hold a user's secrets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from vgpud.core.checksums import ChecksumError, checksum, is_sealed, unseal
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import DEFAULT_QUEUE, QueueSpec, Reservation
from vgpud.core.model import (
    AWAY,
    BATCH,
    CLASSES,
    COMING,
    EVICTION,
    LATENCY,
    LEAVING,
    PAUSED,
    UID_MAX,
    Container,
    Slice,
)
from vgpud.core.queue.record import decode
from vgpud.core.slices.make import name_error
from vgpud.core.units import GPUS_MAX, MILLI_PER_DEVICE
from vgpud.store.jobs import job_of
from vgpud.store.slice_bodies import read_slice

Row = Mapping[str, Any]
INTEGER_MAX = (1 << 63) - 1
#: milli-GPU x ns of months on many devices are more than that
_SERVICE_MAX = 1 << 100
_SERVICES = {"attained", "promoted_attained", "history"}
_ANY = {"features"}  # of a model: any number
#: numbers that may be below 0: -1 is "none", "not known" or "every user"; service of earlier runs is, where a running
#: job has grown, as its run counts with the size of now
_LOWEST = {
    **dict.fromkeys(("attained", "promoted_attained"), -_SERVICE_MAX),
    "priority": -1000,
    "exit_code": -INTEGER_MAX,
    "code": -INTEGER_MAX,
    **dict.fromkeys(("owner_uid", "started_ns", "first_started_ns", "ended_ns", "skew_ppm", "utilisation_milli"), -1),
    **dict.fromkeys(("resized_ns", "limits", "stands_for"), -1),
}
_SLICE_NAME_MAX = 107  # of a socket's path


def _numbers(value: Any, name: str = "") -> str:
    """Why a number in there cannot be."""
    if isinstance(value, bool) or value is None or isinstance(value, str) or name in _ANY:
        return ""
    if isinstance(value, dict):
        return next((why for key, item in value.items() if (why := _numbers(item, key))), "")
    if isinstance(value, list):
        return next((why for item in value if (why := _numbers(item, name))), "")
    most = _SERVICE_MAX if name in _SERVICES else INTEGER_MAX
    if value < _LOWEST.get(name, 0):
        return f"{name} is {str(value)[:30]}, which is below its minimum"
    if not value <= most:  # a float that is no number is not, either
        return f"{name} is {str(value)[:30]}, which is above its maximum"
    return ""


def _body(text: str) -> dict[str, Any]:
    body = unseal(text)
    if why := _numbers(body):
        raise ValueError(why)
    return body


def _decode_body(kind: Any, body: dict[str, Any], read: Callable[[Any, dict[str, Any]], Any] = decode) -> Any:
    """As record.decode() has it, but no content in the error."""
    try:
        return read(kind, body)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"it is not a {kind.__name__} of this version ({type(error).__name__})") from None


def slice_of(text: str) -> Slice:
    """The slice that was written. Raises ValueError with the reason why it is not believed."""
    made: Slice = _decode_body(Slice, _body(text), lambda _, body: read_slice(body))
    wrong = name_error(made.name, _SLICE_NAME_MAX)
    if wrong:
        raise ValueError("its name is not a slice name")
    if not made.uid or made.owner_uid > UID_MAX or made.suspended not in ("", PAUSED, *EVICTION):
        raise ValueError("its uid, owner or state is invalid")
    if made.residency not in ("", LEAVING, AWAY, COMING):
        raise ValueError("its residency is invalid")
    spec = made.spec
    if not 0 <= spec.gpus_milli <= GPUS_MAX * MILLI_PER_DEVICE or spec.service_class not in (*CLASSES, BATCH, LATENCY):
        raise ValueError(f"it asks for {spec.gpus_milli} thousandths of a GPU, or for no known class")
    devices = [share.device_uuid for share in made.shares]
    if len(set(devices)) != len(devices) or len(devices) > GPUS_MAX:
        raise ValueError("it has a device twice, or too many")
    for share in made.shares:
        if not 0 <= share.min_milli <= share.max_milli <= MILLI_PER_DEVICE or not share.max_milli:
            raise ValueError(f"its share is {share.min_milli} to {share.max_milli} thousandths of a device")
        if not 0 <= share.mem_min_bytes <= share.mem_max_bytes or not share.mem_max_bytes:
            raise ValueError(f"its memory is {share.mem_min_bytes} to {share.mem_max_bytes} bytes")
    return made


def container_of(text: str) -> Container:
    """The same of a container."""
    made: Container = _decode_body(Container, _body(text))
    return made


def _slice(row: Row) -> None:
    made = slice_of(row["body"])
    if (made.uid, made.name) != (row["uid"], row["name"]):
        raise ValueError("its columns are not those of the slice in it")


def _container(row: Row) -> None:
    if container_of(row["body"]).container_id != row["id"]:
        raise ValueError("its column is not that of the container in it")


def _with_checksum(*names: str) -> Callable[[Row], None]:
    def check(row: Row) -> None:
        if row["crc"] is not None and row["crc"] != checksum(*(row[name] for name in names)):
            raise ChecksumError("its checksum does not match")

    return check


_drain = _with_checksum("device", "reason", "by_fault")
_request_sum = _with_checksum("id", "fingerprint")
_job_request_sum = _with_checksum("uid", "request_id", "fingerprint", "job_ids", "until_ns")
_queue_sum = _with_checksum("name", "members")


def _request(row: Row) -> None:
    _request_sum(row)
    if row["body"] is not None:
        slice_of(row["body"])


def _texts(text: str, kind: type) -> None:
    items = json.loads(text)
    if not isinstance(items, list) or not all(type(item) is kind for item in items):
        raise ValueError(f"a list in it is not a list of {kind.__name__}")


def _job_request(row: Row) -> None:
    _job_request_sum(row)
    _texts(row["job_ids"], int)


def _queue(row: Row) -> None:
    _queue_sum(row)
    _texts(row["members"], str)
    spec: QueueSpec = _decode_body(QueueSpec, _body(row["spec"]))
    if spec.name != row["name"]:
        raise ValueError("its column is not the name of the queue in it")


def _reservation(row: Row) -> None:
    made: Reservation = _decode_body(Reservation, _body(row["body"]))
    if made.name != row["name"]:
        raise ValueError("its column is not the name of the reservation in it")


def _queue_order(row: Row) -> None:
    """Its numbers are the order's own to check: it learns again where it does not know them."""
    body = unseal(row["body"])
    if body.get("queue") != row["queue"]:
        raise ValueError("its column is not the name of the queue in it")
    if type(body.get("at_ns")) is not int or not 0 <= body["at_ns"] <= INTEGER_MAX:
        raise ValueError("its time is no time")
    if not isinstance(body.get("knowledge"), dict):
        raise ValueError("it does not say what the order has learnt")


def _worker_group(row: Row) -> None:
    body = _body(row["body"])
    if body.get("job_id") != row["job_id"]:
        raise ValueError("its column is not the job in it")


def launch_error(text: str | None) -> str:
    """Why this text does not say what a job runs."""
    if text is None or (text[:1] == "@" and text[1:].isdecimal()):
        return ""
    try:
        _decode_body(Launch, _body(text))
    except (ValueError, RecursionError) as error:
        return _reason(error)
    return ""


def _job(row: Row) -> None:
    """An ended job that is unchanged is not checked further: there may be a hundred thousand."""
    bodies: dict[str, dict[str, Any]] = {}
    for name in ("spec", "state"):
        if not (row["ended"] and is_sealed(row[name])):
            bodies[name] = _body(row[name])
    if row["facts"] != "{}" and not is_sealed(row["facts"]):
        unseal(row["facts"])
    as_written = row["ended"] and row["launch"] and is_sealed(row["launch"])
    if not as_written and (why := launch_error(row["launch"])):
        raise ValueError(f"what it runs: {why}")
    _job_columns(row, bodies)


def _job_columns(row: Row, bodies: dict[str, dict[str, Any]]) -> None:
    if row["id"] <= 0 or row["ended"] < 0:
        raise ValueError("its number or its end is below 0")
    if len(bodies) < 2:
        parts = [(row["state"], "job_id", row["id"]), (row["state"], "ended_ns", row["ended"])]
        if row["uid"]:  # what has its default is not written
            parts.append((row["spec"], "uid", row["uid"]))
        if row["queue"] != DEFAULT_QUEUE:
            parts.append((row["spec"], "queue", json.dumps(row["queue"])))
        if any(f'"{name}": {value}' not in text for text, name, value in parts):
            raise ValueError("its columns are not those of the job in it")
        return
    if bodies["state"].get("job_id") != row["id"]:
        raise ValueError("its column is not the number in it")
    try:
        job = job_of(row["spec"], None, row["state"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"it is not a job of this version ({type(error).__name__})") from None
    if (job.ended_ns if job.state.is_final else 0, job.spec.uid, job.spec.queue) != (
        row["ended"],
        row["uid"],
        row["queue"],
    ):
        raise ValueError("its columns are not those of the job in it")


#: by table: its columns with their types (a ? for one that may be NULL), and further conditions
CHECKS: dict[str, tuple[dict[str, str], Callable[[Row], None]]] = {
    "slices": ({"uid": "text", "name": "text", "body": "text"}, _slice),
    "containers": ({"id": "text", "body": "text"}, _container),
    "drains": ({"device": "text", "reason": "text", "by_fault": "integer", "crc": "integer?"}, _drain),
    "requests": (
        {"id": "text", "fingerprint": "text", "body": "text?", "serial": "integer", "crc": "integer?"},
        _request,
    ),
    "queues": ({"name": "text", "spec": "text", "members": "text", "crc": "integer?"}, _queue),
    "jobs": (
        {
            **dict.fromkeys(("id", "ended", "uid", "bytes"), "integer"),
            **dict.fromkeys(("queue", "spec", "state", "facts"), "text"),
            "launch": "text?",
        },
        _job,
    ),
    "job_requests": (
        {
            **dict.fromkeys(("uid", "until_ns"), "integer"),
            **dict.fromkeys(("request_id", "fingerprint", "job_ids"), "text"),
            "crc": "integer?",
        },
        _job_request,
    ),
    "reservations": ({"name": "text", "body": "text"}, _reservation),
    "queue_orders": ({"queue": "text", "body": "text"}, _queue_order),
    "job_crews": ({"job_id": "integer", "body": "text"}, _worker_group),
}

#: tables with many rows, whose invalid ones are found by SQL
BULK: dict[str, tuple[dict[str, str], str]] = {
    "events": (
        {
            **dict.fromkeys(("sequence", "wall_ns", "process_id", "owner_uid"), "integer"),
            **dict.fromkeys(("kind", "slice", "device", "message"), "text"),
        },
        "sequence < 0 OR wall_ns < 0",
    ),
    "usage": (
        {
            **dict.fromkeys(("begin_ns", "end_ns", "job_id", "uid", "asked", "granted", "used"), "integer"),
            **dict.fromkeys(("copy_to_device_bytes", "copy_from_device_bytes"), "integer"),
            **dict.fromkeys(("slice_uid", "slice", "queue", "namespace", "pod"), "text"),
        },
        "begin_ns < 0 OR end_ns < begin_ns OR asked < 0 OR granted < 0 OR used < 0 OR job_id < 0 OR uid < -1"
        " OR copy_to_device_bytes < 0 OR copy_from_device_bytes < 0",
    ),
    "queue_history": ({"name": "text", "history": "integer", "at_ns": "integer"}, "history < 0 OR at_ns < 0"),
    "job_notes": ({**dict.fromkeys(("job_id", "at_ns"), "integer"), "kind": "text", "text": "text"}, "at_ns < 0"),
    "job_pairs": ({"one": "text", "other": "text", "at_ns": "integer"}, "at_ns < 0"),
    "job_ids": ({"next": "integer"}, "next < 1"),
}


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "it is not JSON"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def why_damaged(table: str, types: Row, values: Row) -> str:
    """`types`: of each column, as typeof() has it; `values`: texts as bytes. "" for a row that is believed."""
    columns, check = CHECKS[table]
    row: dict[str, Any] = {}
    for name, wanted in columns.items():
        found = types[name]
        if found == "null" and wanted.endswith("?"):
            row[name] = None
            continue
        if found != wanted.rstrip("?"):
            return f"{name} is {found}, not {wanted.rstrip('?')}"
        try:
            row[name] = values[name].decode() if found == "text" else values[name]
        except UnicodeDecodeError:
            return f"{name} is not UTF-8"
    try:
        check(row)
    except (ValueError, RecursionError) as error:
        return _reason(error)
    return ""
