"""Templates: everything is escaped, a name that does not exist is an error, all are loaded at the start."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

from vgpud.console.web.clock import describe_clock, format_local, format_stamp
from vgpud.core.units import format_bytes, format_gpus
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.slices import find_absence, find_is_on_host
from vgpud.view.spans import format_span
from vgpud.view.text import duration, gpu_time, plain
from vgpud.view.user_names import user_name

#: (path, title, key) of the pages in the header
NAV = (
    ("/", "Overview", "o"),
    ("/queue", "Queue", "q"),
    ("/services", "Services", "v"),
    ("/submit", "Submit", "s"),
    ("/quotas", "Quotas", "t"),
    ("/usage", "Usage", "u"),
    ("/whatif", "What if", "w"),
    ("/events", "Events", "e"),
)
FOLDER = Path(__file__).resolve().parent.parent / "templates"


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
    "absence": find_absence,
    "ago": _ago,
    "bytes": format_bytes,
    "devices": job_tables.devices_label,
    "gate": words.GATE.to_word,
    "gpu_time": gpu_time,
    "gpus": format_gpus,
    "job_gpus": job_tables.gpus_label,
    "job_name": job_tables.name_label,
    "is_on_host": find_is_on_host,
    "local": format_local,
    "percent": slice_tables.percent,
    "plain": plain,
    "scheduling": words.SCHEDULING.to_word,
    "seconds": _seconds,
    "span": format_span,
    "stamp": format_stamp,
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
    made.globals["zone"] = describe_clock
    for name in made.list_templates():
        made.get_template(name)
    return made


class Templates:
    """All templates."""

    def __init__(self) -> None:
        self._env = _environment()

    def render(self, name: str, **values: Any) -> str:
        return self._env.get_template(name).render(**values)
