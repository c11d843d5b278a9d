"""The text of `vgpu slice show`: one slice, its limits, its usage and its waits."""

from __future__ import annotations

import datetime

from vgpud.cli.slices.top_frame import REGIMES
from vgpud.core.model import BY_CHECKPOINT
from vgpud.core.units import format_bytes
from vgpud.view import figures, slice_tables
from vgpud.view.slices import View, describe_absence, is_on_host
from vgpud.view.text import plain
from vgpud.view.user_names import user_name

NO_PROGRAM = "- (no program)"
#: meanings of a gate's states
GATES = {
    None: NO_PROGRAM,
    "solo": "solo: open, launches are not counted; device time is the driver's reading",
    "count": "count: open",
    "closed": "closed: launches wait",
}
#: meanings of a slice's suspended states
SUSPENDED = {
    "paused": "paused: launches wait, its memory stays, its SM time is offered to others",
    "evicting": "being evicted",
    "evicted": "evicted: its share and memory are offered to others; its memory is on the host",
    "restoring": "being restored",
}
#: where the memory of a slice is that rotates or sleeps
RESIDENCY = {
    None: "on the device",
    "leaving": "being moved to the host",
    "away": "its next call waits until its memory is back; it is on the host",
    "coming": "being moved back to the device",
}
_LABEL_CELLS = 13
#: indent of what does not fit in a line
FURTHER = " " * (_LABEL_CELLS + 3)
_BAR_CELLS = 30

Pairs = list[tuple[str, str]]


def slice_lines(item: View, now: datetime.datetime, ascii_only: bool = False) -> list[str]:
    """Everything about one slice."""
    lines = [f"slice {plain(item['name'])} on node {plain(item['node'])}", *_align_pairs(_general(item, now))]
    for device in item["devices"]:
        simulated = "SIMULATED, " if device["simulated"] else ""
        lines += ["", f"device {device['device_index']} ({simulated}{device['device_uuid']})"]
        lines += _align_pairs(
            [*_limits(device, is_on_host(item)), *_describe_usage(device, describe_absence(item)), *_turns(device)]
        )
        lines += _waits(device, ascii_only)
    return lines


def _align_pairs(pairs: Pairs) -> list[str]:
    return [f"  {label:<{_LABEL_CELLS}} {plain(text)}" for label, text in pairs]


def _general(item: View, now: datetime.datetime) -> Pairs:
    claim = item["claim"]
    ends = "with its claim" if claim else "with its last program" if item["ephemeral"] else "when it is removed"
    pairs = [
        (
            "created",
            f"{slice_tables.age(item['create_time'], now)} ago for {user_name(item['owner_uid'])}, ends {ends}",
        ),
        ("class", f"{item['class']}, priority {item['priority']}, weight {item['weight'] or 'by the minimum'}"),
        *_link(item),
        ("queue", item["queue"] + (f", for job {slice_tables.job_label(item)}" if item["job_id"] else "")),
        ("programs", str(item["processes"])),
    ]
    if claim:
        pairs.append(("claim", f"{claim['namespace']}/{claim['name']} ({claim['uid']})"))
        pairs += [("pod", uid) for uid in claim["pods"]]
    if item["suspended"]:
        where = _describe_host(item, now) if item["suspended"] == "evicted" else ""
        pairs.append(("suspended", SUSPENDED[item["suspended"]] + where))
    if item["rotation"]:
        pairs += _rotation(item, now)
    for container in item["containers"]:
        state = f"pid {container['pid']}, {container['cgroup'] or 'ended'}" if container["pid"] else "being created"
        name = f"{container['name']}, " if container["name"] else ""
        pairs.append(("container", f"{name}{container['id'][:12]}, {state}"))
    if item["cdi_device"]:
        pairs.append(("CDI device", item["cdi_device"]))
    return [*pairs, ("socket", item["attach_socket"]), ("uid", f"{item['uid']}, revision {item['revision']}")]


def _rotation(item: View, now: datetime.datetime) -> Pairs:
    """Where its memory is, and what it costs that slices take turns."""
    turns = item["rotation"]
    where, calls = RESIDENCY[item["residency"]], turns["waiting_calls"]
    if item["residency"] == "away":
        if calls:
            who = "a call waits" if calls == 1 else f"{calls} calls wait"
            where = f"{who} until its memory is back; it is on the host"
        where += _describe_host(item, now)
    if item["asleep_time"] and not calls:
        where = f"asleep: {where}"
    moved = f"{turns['moves']} {'move' if turns['moves'] == 1 else 'moves'}, {format_bytes(turns['moved_bytes'])}"
    rate = f"{format_bytes(turns['bytes_per_second'])}/s"
    who = "the driver" if turns["moved_by"] == BY_CHECKPOINT else "its program"
    pairs = [("residency", where), ("moved", f"{moved}, at {rate}, by {who}")]
    if turns["stays_bytes"]:
        pairs.append(("stays", f"{format_bytes(turns['stays_bytes'])} stay on the device while it is away"))
    if item["idle_after_ns"]:
        pairs.append(("idle after", f"{_seconds(item['idle_after_ns'])} without work, its memory is given back"))
    if not item["mem_swap"]:
        return pairs
    sizes = (
        f"{format_bytes(turns['claims_bytes'])} of slices with --mem-swap for {format_bytes(turns['capacity_bytes'])}"
    )
    text = "they fit, none leaves"
    if turns["quantum_ns"]:
        text = (
            f"turns of up to {_seconds(turns['quantum_ns'])}, {slice_tables.percent(turns['lost_ratio'])} of the time"
        )
        text += f" lost in moves, {format_bytes(turns['host_bytes'])} of the host's RAM"
    return [*pairs, ("rotation", f"{sizes}: {text}")]


def _describe_host(item: View, now: datetime.datetime) -> str:
    """How much of its memory is there, and since when."""
    size = sum(device["mem_used_bytes"] for device in item["devices"])
    if not item["away_time"]:
        return f", {format_bytes(size)}"
    begin = slice_tables.parse_time(item["away_time"])
    return f", {format_bytes(size)} since {begin:%Y-%m-%dT%H:%M:%SZ} ({slice_tables.age(item['away_time'], now)})"


def _link(item: View) -> Pairs:
    low, high = item["copy_min_milli"], item["copy_max_milli"]
    if not low and not high:
        return []
    return [
        ("link", f"minimum {slice_tables.percent(low / 1000)}, maximum {slice_tables.percent((high or 1000) / 1000)}")
    ]


def _limits(device: View, is_on_host: bool) -> Pairs:
    low, high, mem_min, mem_max = slice_tables.four_numbers(device)
    used, peak = format_bytes(device["mem_used_bytes"]), format_bytes(device["mem_peak_bytes"])
    where = "on the host" if is_on_host else "in use"
    memory = f"{used} {where} of {mem_max} (guaranteed {mem_min}), peak {peak}, {device['mem_denied']} refused"
    pairs = [("SM time", f"minimum {low}, maximum {high}"), ("memory", memory)]
    if device["mem_over_limit_bytes"]:
        over = format_bytes(device["mem_over_limit_bytes"])
        text = f"{over}: allocated memory stays, and no more is granted until it is below the limit"
        pairs.append(("OVER LIMIT", text))
    if device["reclaim"]:
        pairs.append(("asked back", _describe_reclaim(device["reclaim"])))
    if device["mem_unattributed_bytes"]:
        beyond = format_bytes(device["mem_unattributed_bytes"])
        text = f"{beyond} of it counted by the driver beyond the ledger: see `vgpu events`"
        pairs.append(("past ledger", text))
    return pairs


def _describe_reclaim(reclaim: View) -> str:
    asked, duration = format_bytes(reclaim["asked_bytes"]), _seconds(reclaim["duration_ns"])
    if reclaim["remaining_bytes"]:
        return f"{asked}, {duration} ago: {format_bytes(reclaim['remaining_bytes'])} have not come back yet"
    came = f"{asked}: {format_bytes(reclaim['returned_bytes'])} came back in {duration}"
    return f"{came}, when its time was up" if reclaim["late"] else came


def _describe_usage(device: View, absence: str) -> Pairs:
    regime = device["regime"]
    shared = f"{regime}: {REGIMES[regime]}" if regime in REGIMES else regime or "-"
    spans = (("1 s", "share_ratio"), ("10 s", "share_10s_ratio"), ("60 s", "share_60s_ratio"))
    charged_ns, lag_ns = device["charged_ns"], device["lag_ns"]
    whose = " owed to it" if lag_ns > 0 else " overdrawn" if lag_ns else ""
    borrowed = f"{_seconds(device['borrowed_ns'])} borrowed" + _part(device["borrowed_ns"], charged_ns)
    return [
        ("shared", shared),
        ("gate", f"closed: the slice is {absence}" if absence and device["gate"] else _describe_gate(device)),
        ("due now", slice_tables.percent(device["entitlement_milli"] / 1000) if device["gate"] else NO_PROGRAM),
        ("got", ", ".join(f"{slice_tables.percent(device[name])} in {span}" for span, name in spans)),
        ("balance", figures.short_time(abs(lag_ns)) + whose if device["gate"] else NO_PROGRAM),
        ("device time", f"{_seconds(charged_ns)}, of which {borrowed}"),
        ("launches", str(device["launches"])),
        ("copied", _copies(device)),
    ]


def _describe_gate(device: View) -> str:
    return GATES.get(device["gate"], str(device["gate"]))


def _copies(device: View) -> str:
    """Between host and device, each way with the link's time for it and the rate that it is held to, and host memory
    that is pinned."""
    ways = []
    for name, words in (("to", "to the device"), ("from", "from it")):
        link_ns, most = device[f"copy_{name}_device_ns"], device[f"copy_{name}_device_bytes_per_s"]
        notes = [f"{figures.short_time(link_ns)} of the link"] if link_ns else []
        notes += [f"now at most {format_bytes(most)}/s"] if most else []
        noted = f" ({', '.join(notes)})" if notes else ""
        ways.append(f"{format_bytes(device[f'copy_{name}_device_bytes'])} {words}{noted}")
    denied = f", {device['pinned_denied']} times refused" if device["pinned_denied"] else ""
    return f"{', '.join(ways)}; {format_bytes(device['pinned_bytes'])} pinned{denied}"


def _seconds(span_ns: int) -> str:
    return f"{span_ns / 1e9:.1f} s"


def _part(part: int, total: int) -> str:
    return f" ({slice_tables.percent(part / total)})" if total else ""


def _turns(device: View) -> Pairs:
    drains, mean_ns = device["drains"], device["drain_total_ns"] / max(1, device["drains"])
    longest = f", mean {figures.short_time(mean_ns)}, longest {figures.short_time(device['drain_max_ns'])}"
    leases = f"{device['grants']}, {device['early_releases']} returned early, {device['overruns']} overrun"
    return [("leases", leases), ("drains", f"{drains}{longest if drains else ''}")]


def _waits(device: View, ascii_only: bool) -> list[str]:
    """The waits at the closed gate, as a sentence and a histogram."""
    counts = device["wait_counts"]
    text = f"{sum(counts)} at the closed gate"
    if sum(counts):
        p50, p99 = figures.wait_quantile(counts, 0.5), figures.wait_quantile(counts, 0.99)
        text += f", {_seconds(device['throttled_ns'])} in all, half below {p50}, 99 % below {p99}"
    lines = _align_pairs([("waits", text)])
    for label, bar, count in figures.wait_bars(counts, _BAR_CELLS, ascii_only):
        lines.append(f"  {label:>{_LABEL_CELLS}} {bar:<{_BAR_CELLS}} {count}".rstrip())
    return lines
