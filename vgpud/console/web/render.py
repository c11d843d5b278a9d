"""Templates: everything is escaped, a name that does not exist is an error, all are loaded at the start."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import Any

import jinja2

from vgpud.core.units import format_bytes, format_gpus
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.spans import format_span
from vgpud.view.text import duration, gpu_time, plain
from vgpud.view.user_names import user_name

#: (path, title, key) of the pages in the header
NAV = (
    ("/", "Overview", "o"),
    ("/queue", "Queue", "q"),
    ("/submit", "Submit", "s"),
    ("/quotas", "Quotas", "t"),
    ("/usage", "Usage", "u"),
    ("/whatif", "What if", "w"),
    ("/events", "Events", "e"),
)
FOLDER = Path(__file__).resolve().parent.parent / "templates"


def _local(stamp: str | None) -> str:
    """An RFC 3339 time on the node's clock, with the date if it is not today."""
    if not stamp:
        return "-"
    at = slice_tables.parse_time(stamp).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == slice_tables.now_utc().astimezone().date() else "%Y-%m-%d %H:%M:%S")


def _zone() -> dict[str, object]:
    """The node's clock, which all times are of: how it is called, and how far it is ahead of UTC."""
    now = slice_tables.now_utc().astimezone()
    offset_s = int((now.utcoffset() or datetime.timedelta()).total_seconds())
    sign, minutes = "-" if offset_s < 0 else "+", abs(offset_s) // 60
    return {"name": f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "UTC", "offset_s": offset_s}


def _ago(stamp: str | None) -> str:
    return slice_tables.age(stamp, slice_tables.now_utc())


def _until(stamp: str | None) -> str:
    if not stamp:
        return "-"
    left_s = (slice_tables.parse_time(stamp) - slice_tables.now_utc()).total_seconds()
    return f"in {duration(left_s)}" if left_s > 0 else "soon"


def _seconds(span_ns: float) -> str:
    return f"{span_ns / 1e9:.1f} s" if span_ns >= 1e9 else f"{span_ns / 1e6:.1f} ms" if span_ns >= 1e5 else "0"


def _hours(seconds: float | None) -> str:
    """Seconds below three hours, then hours, as `vgpu whatif` prints them."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 10_800 else f"{seconds / 3600:.1f} h"


FILTERS = {
    "ago": _ago,
    "bytes": format_bytes,
    "devices": job_tables.devices_label,
    "gpu_time": gpu_time,
    "gpus": format_gpus,
    "job_gpus": job_tables.gpus_label,
    "job_name": job_tables.name_label,
    "local": _local,
    "percent": slice_tables.percent,
    "plain": plain,
    "scheduling": words.SCHEDULING.to_word,
    "seconds": _seconds,
    "span": format_span,
    "until": _until,
    "hours": _hours,
    "user": user_name,
}


@functools.lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """With all templates compiled: the process may lose the right to read them."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals["nav"] = NAV
    made.globals["zone"] = _zone
    for name in made.list_templates():
        made.get_template(name)
    return made


class Templates:
    """All templates."""

    def __init__(self) -> None:
        self._env = _environment()

    def render(self, name: str, **values: Any) -> str:
        return self._env.get_template(name).render(**values)
