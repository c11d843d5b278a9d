"""Spans of time as text, for what shows them."""

from vgpud.core.spans import format_span as format_span
from vgpud.core.spans import parse_span as parse_span
