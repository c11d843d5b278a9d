"""The tables: devices, slices, processes, events. A simulated device says SIMULATED in every row that names it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpud.core.units import format_bytes, format_gpus
from vgpud.view.fit import Cell, Grid, shorten_text
from vgpud.view.slices import ASLEEP, View, describe_absence, is_on_host
from vgpud.view.text import duration, natural_key
from vgpud.view.user_names import named_users, user_name

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a container's name, which may be as long as a host's
_NAME_CELLS = 32


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.1f}%"


def device_label(index: int, is_simulated: bool) -> str:
    """One word, so that columns can be split at blanks."""
    return f"{index}-SIMULATED" if is_simulated else str(index)


def full_name(name: str, is_simulated: bool) -> str:
    return f"SIMULATED {name}" if is_simulated and "SIMULATED" not in name else name


def span(low: str, high: str) -> str:
    return low if low == high else f"{low}..{high}"


def age(stamp: str | None, now: datetime.datetime) -> str:
    """How long ago an RFC 3339 time was."""
    if stamp is None:
        return "-"
    return duration((now - parse_time(stamp)).total_seconds())


def parse_time(stamp: str) -> datetime.datetime:
    """An RFC 3339 time (UTC, up to nanoseconds) as datetime."""
    return datetime.datetime.fromisoformat(stamp.rstrip("Z")[:26]).replace(tzinfo=datetime.timezone.utc)


def now_utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _describe_offer(device: View) -> str:
    """Whether a device is offered to slices, and if not, why."""
    if device["drained"]:
        return f"no: drained: {device['drained']}"
    offered = "to Kubernetes" if device["kubernetes"] else "yes"
    if device["taken_by"]:
        return f"{offered}, beside {device['taken_by']}" if device["offered"] else f"no: {device['taken_by']}"
    return offered


def not_offered(taken_by: str) -> str:
    """Why a device is not offered although it is not drained: another user has it, or it is lost."""
    return taken_by if taken_by.startswith("lost: ") else f"taken by {taken_by}"


def devices_grid(devices: Sequence[View]) -> Grid:
    titles = ("DEVICE", "NAME", ">UTIL", ">RESERVED", ">FREE", ">MEM-USED", ">MEM-RESERVED", ">MEM-TOTAL")
    least = ("UUID", "MEM-RESERVED", "UTIL", "NAME", "MEM-USED", "RESERVED", "MEM-TOTAL")
    grid = Grid((*titles, "OFFERED", "UUID"), first_to_go=least, own_line_columns=("OFFERED",))
    for d in devices:
        grid.rows.append(
            (
                device_label(d["index"], d["simulated"]),
                full_name(d["name"], d["simulated"]),
                percent(d["utilization_ratio"]),
                format_gpus(d["reserved_milli"]),
                format_gpus(max(0, 1000 - d["reserved_milli"]) if d["offered"] else 0),
                format_bytes(d["mem_used_bytes"]),
                format_bytes(d["mem_reserved_bytes"]),
                format_bytes(d["mem_total_bytes"]),
                _describe_offer(d),
                d["uuid"],
            )
        )
    return grid


def slices_grid(slices: Sequence[View], now: datetime.datetime) -> Grid:
    """A row per slice and device; with a column of claims on a node of Kubernetes."""
    titles = (
        "SLICE",
        "USER",
        "QUEUE",
        "JOB",
        "DEVICE",
        ">MIN",
        ">MAX",
        ">GOT",
        ">MEM-MIN",
        ">MEM-MAX",
        ">MEM-USED",
        ">PROCS",
        "GATE",
        ">AGE",
    )
    kubernetes = any(item["claim"] for item in slices)
    least = ("CONTAINER", "MEM-MIN", "QUEUE", "AGE", "CLAIM", "JOB", "PROCS", "MAX", "MEM-MAX", "GATE", "MIN", "USER")
    names = ("SLICE", "USER", "QUEUE", "JOB", "CONTAINER", "CLAIM")
    grid = Grid((*titles, "CONTAINER", *(["CLAIM"] if kubernetes else [])), first_to_go=least, names=names)
    for item in sorted(slices, key=lambda item: natural_key(item["name"])):
        claim = [claim_label(item["claim"])] if kubernetes else []
        if not item["devices"]:  # of its size it is known what may be guaranteed, and nothing else
            who = (item["name"], user_name(item["owner_uid"]), item["queue"] or "-", job_label(item), "pending")
            numbers = (format_gpus(item["gpus_milli"]), *("-",) * 5, str(item["processes"]), "-")
            since = age(item["create_time"], now)
            grid.rows.append((*who, *numbers, since, containers_label(item["containers"]), *claim))
        for d in item["devices"]:
            grid.rows.append(
                (
                    item["name"],
                    user_name(item["owner_uid"]),
                    item["queue"] or "-",
                    job_label(item),
                    device_label(d["device_index"], d["simulated"]),
                    format_gpus(d["min_milli"]),
                    format_gpus(d["max_milli"]),
                    percent(d["share_ratio"]),
                    format_bytes(d["mem_min_bytes"]),
                    format_bytes(d["mem_max_bytes"]),
                    _memory_cell(d, is_on_host(item)),
                    str(item["processes"]),
                    item["suspended"] or residency_label(item, now) or d["gate"] or "-",
                    age(item["create_time"], now),
                    containers_label(item["containers"]),
                    *claim,
                )
            )
    return grid


def residency_label(item: View, now: datetime.datetime) -> str:
    """Where its memory is, "" = on the device; of a sleeper since when, one word: asleep:12m."""
    word = describe_absence({**item, "suspended": None})
    return f"{word}:{age(item['asleep_time'], now)}" if word == ASLEEP else word


def job_label(item: View) -> str:
    """The job of a slice, one word: its number with its name, 12:train."""
    if not item["job_id"]:
        return "-"
    name = "-".join((item["job_name"] or "").split())
    return f"{item['job_id']}:{name}" if name else str(item["job_id"])


def holder_label(item: View) -> str:
    """What a slice was created for: its job, claim or container; "-" for the programs of its user."""
    if item["job_id"]:
        return job_label(item)
    if item["claim"]:
        return claim_label(item["claim"])
    return containers_label(item["containers"])


def claim_label(claim: View | None) -> str:
    """A ResourceClaim of Kubernetes, one word."""
    return f"{claim['namespace']}/{claim['name']}" if claim else "-"


def containers_label(containers: Sequence[View]) -> str:
    """A slice's containers, one word: "-", or the first one and the number of others."""
    if not containers:
        return "-"
    others = f"+{len(containers) - 1}" if len(containers) > 1 else ""
    return container_label(containers[0]["name"], containers[0]["id"]) + others


def container_label(name: str | None, container_id: str | None) -> str:
    """A container as its engine lists it, one word: its name, else the id's first 12 characters; "-" for none."""
    return shorten_text(name, _NAME_CELLS) if name else (container_id or "-")[:12]


def _memory_cell(device: View, is_on_host: bool) -> Cell:
    """Used memory, marked HOST where it is not on the device; yellow above 95 % of the limit, where allocations soon
    fail, red and marked OVER above it."""
    used = format_bytes(device["mem_used_bytes"]) + ("-HOST" if is_on_host and device["mem_used_bytes"] else "")
    if device["mem_over_limit_bytes"]:
        return Cell(f"{used}-OVER", "red")
    full = device["mem_used_bytes"] * 20 > device["mem_max_bytes"] * 19
    return Cell(used, "yellow" if full else "")


def _limit_cell(device: View | None) -> Cell:
    """The slice's memory limit; marked OVER if the slice uses more."""
    if device is None:
        return Cell("-")
    limit = format_bytes(device["mem_max_bytes"])
    return Cell(f"{limit}-OVER", "red") if device["mem_over_limit_bytes"] else Cell(limit)


def _process_memory(device: View, is_on_host: bool) -> str:
    """Memory in the ledger, and memory that the driver counts beyond it: 2GiB+512MiB; 2GiB-HOST where it is not on the
    device."""
    beyond, used = device["mem_unattributed_bytes"], device["mem_used_bytes"]
    where = "-HOST" if is_on_host and used else ""
    return format_bytes(used) + where + (f"+{format_bytes(beyond)}" if beyond else "")


def processes_grid(processes: Sequence[View], slices: Sequence[View], now: datetime.datetime) -> Grid:
    """A row per process and device, with the four numbers of its slice there."""
    titles = ("PID", "USER", "SLICE", "CLASS", ">PRIO", "DEVICE", ">MIN", ">MAX", ">MEM-MIN", ">MEM-MAX", ">MEM-USED")
    all_titles = (*titles, ">MEM-PEAK", ">LAUNCHES", ">AGE", "CONTAINER", "PROGRAM")
    least = ("MEM-MIN", "PRIO", "MEM-PEAK", "CLASS", "CONTAINER", "LAUNCHES", "AGE", "MIN", "MEM-MAX", "MAX", "DEVICE")
    grid = Grid(
        all_titles,
        first_to_go=(*least, "MEM-USED"),
        own_line_columns=("PROGRAM",),
        names=("SLICE", "USER", "CONTAINER"),
    )
    numbers = {(item["name"], d["device_uuid"]): d for item in slices for d in item["devices"]}
    ranks = {item["name"]: (item["class"], str(item["priority"])) for item in slices}
    away = {item["name"] for item in slices if is_on_host(item)}
    for p in sorted(processes, key=lambda p: natural_key(p["slice"])):
        for d in p["devices"]:
            limits = numbers.get((p["slice"], d["device_uuid"]))
            three = ("-",) * 3 if limits is None else four_numbers(limits)[:3]
            grid.rows.append(
                (
                    str(p["pid"]),
                    user_name(p["uid"]),
                    p["slice"],
                    *ranks.get(p["slice"], ("-", "-")),
                    device_label(d["device_index"], d["simulated"]),
                    *three,
                    _limit_cell(limits),
                    _process_memory(d, p["slice"] in away),
                    format_bytes(d["mem_peak_bytes"]),
                    str(d["launches"]),
                    age(p["attach_time"], now),
                    container_label(p["container_name"], p["container"]),
                    p["program"],
                )
            )
    return grid


def four_numbers(device: View) -> tuple[str, str, str, str]:
    """Minimum and maximum of SM time and memory, as text."""
    return (
        format_gpus(device["min_milli"]),
        format_gpus(device["max_milli"]),
        format_bytes(device["mem_min_bytes"]),
        format_bytes(device["mem_max_bytes"]),
    )


def node_label(node: pb.Node) -> str:
    """One word; a node with simulated devices says so."""
    return f"{node.name}-SIMULATED" if node.simulated else node.name


def events_grid(events: Sequence[View], node: str) -> Grid:
    titles = (">SEQ", "TIME", "NODE", "KIND", "SLICE", "MESSAGE")
    grid = Grid(titles, first_to_go=("NODE", "SEQ", "SLICE", "TIME"), own_line_columns=("MESSAGE",))
    grid.rows.extend(event_row(e, node) for e in events)
    return grid


def event_row(event: View, node: str) -> tuple[str, ...]:
    at = parse_time(event["create_time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S") if event["create_time"] else "-"
    return (str(event["sequence"]), at, node, event["kind"], event["slice"] or "-", named_users(event["message"]))
