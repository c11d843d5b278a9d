"""The node's clock: all times of the console are of one time zone, which is named at the foot of each page."""

from __future__ import annotations

import datetime
import functools
import os
import zoneinfo
from pathlib import Path

from vgpud.view.slice_tables import now_utc, parse_time

_LOCALTIME, _FOLDER = Path("/etc/localtime"), "/zoneinfo/"


@functools.lru_cache(maxsize=8)
def find_zone_name(tz: str | None) -> str:
    """As in the time-zone database, Europe/Berlin; "": it has no name, only an offset. tz: the variable TZ, if set."""
    try:
        name = os.path.realpath(_LOCALTIME).rpartition(_FOLDER)[2] if tz is None else tz.removeprefix(":")
        zoneinfo.ZoneInfo(name)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        return ""
    return name


def describe_clock() -> dict[str, object]:
    """name: as it is shown; zone: for scripts, "" where it has no name; offset_s: how far it is ahead of UTC now."""
    offset_s = int((now_utc().astimezone().utcoffset() or datetime.timedelta()).total_seconds())
    sign, minutes = "-" if offset_s < 0 else "+", abs(offset_s) // 60
    offset = f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "UTC"
    zone = find_zone_name(os.environ.get("TZ"))
    is_known_as_offset = not zone or zone.rpartition("/")[2] == "UTC"
    return {"name": offset if is_known_as_offset else f"{zone}, {offset}", "zone": zone, "offset_s": offset_s}


def format_local(stamp: str | None) -> str:
    """An RFC 3339 time on the node's clock, with the date if it is not today."""
    if not stamp:
        return "-"
    at = parse_time(stamp).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == now_utc().astimezone().date() else "%Y-%m-%d %H:%M:%S")


def format_stamp(at_s: float) -> str:
    """A time in s since 1970 as RFC 3339, to the second."""
    at = datetime.datetime.fromtimestamp(int(at_s), datetime.timezone.utc)
    return at.isoformat().replace("+00:00", "Z")
