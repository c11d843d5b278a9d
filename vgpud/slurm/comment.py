"""Words that Slurm's programs print, and those of a comment that is meant for the queue. Pure."""

from __future__ import annotations

import re

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS

#: first word of a comment that is meant for us
COMMENT_WORD = "vgpu"
_SPAN = re.compile(r"(?:(\d{1,15})-)?(?:(\d{1,15}):)?(\d{1,15}):(\d{1,15})", re.A)
_SAID_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", re.A)
_SAID_PART = re.compile(r"0?\.\d{1,6}|[01](\.0*)?", re.A)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def span_ns(text: str) -> int:
    """1-02:03:04, 02:03:04, 03:04; 0 for none and for words."""
    found = _SPAN.fullmatch(text)
    if not found:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return min(NEVER_NS - 1, (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND_NS)


def span_text(span_ns: int) -> str:
    """As sbatch's --time takes it: 1-02:03:04, whole seconds upwards."""
    minutes, seconds = divmod(-(-span_ns // SECOND_NS), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


def parse_comment(comment: str) -> dict[str, str]:
    """The words NAME=VALUE of a comment that begins with "vgpu"; of other comments none."""
    words = comment.split()
    if not words or words[0].rstrip(":") != COMMENT_WORD:
        return {}
    pairs = (word.partition("=") for word in words[1:])
    return {name: value for name, equals, value in pairs if equals}


def parse_duration_ns(text: str) -> int:
    """A duration in a comment: 2h, 30m, 90s; 0 where it is none."""
    found = _SAID_SPAN.fullmatch(text)
    return min(NEVER_NS - 1, int(float(found[1]) * _UNITS_S[found[2]] * SECOND_NS)) if found else 0


def parse_skew_ppm(text: str) -> int:
    """A part from 0 to 1 in a comment; -1 where it is none."""
    return int(float(text) * 1_000_000) if _SAID_PART.fullmatch(text) else -1
