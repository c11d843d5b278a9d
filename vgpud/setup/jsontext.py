"""Changes one member of a JSON text and keeps every other byte: order, indentation, blanks.

json.loads and json.dumps would reformat the user's file. The standard library's own scanner finds the values' places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # there since Python 2.6, not in the stubs
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Member:
    key: str
    start: int  # of the key
    value: int  # start of the value
    end: int  # after the value


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """The members of the object at `at` and where its closing brace is. The text must be valid JSON."""
    found: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        key, at = scanstring(text, at + 1, True)
        value = _skip(text, _skip(text, at) + 1)
        _, end = json.JSONDecoder().raw_decode(text, value)
        found.append(_Member(key, start, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at


def _indent(text: str) -> str:
    """The text's own indentation of one level; none if it is all on one line."""
    match = re.search(r"\n([ \t]+)\"", text)
    return match.group(1) if match else ("" if "\n" not in text.strip() and len(text.strip()) > 2 else "    ")


def _dump(value: Any, indent: str, level: int) -> str:
    if not indent:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", "\n" + indent * level)


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """The text with the member at `path` set; creates missing objects. The text must be a valid JSON object."""
    indent = _indent(text)
    at = _skip(text, 0)
    for level, key in enumerate(path):
        members, close = _members(text, at)
        found = next((m for m in reversed(members) if m.key == key), None)
        last = level == len(path) - 1
        if found is None:
            for rest in reversed(path[level + 1 :]):
                value = {rest: value}
            new = f"{json.dumps(key, ensure_ascii=False)}: {_dump(value, indent, level + 1)}"
            return _insert(text, at, close, members, new, indent, level)
        if last:
            return text[: found.value] + _dump(value, indent, level + 1) + text[found.end :]
        at = found.value
    raise AssertionError("an empty path")


def _insert(text: str, opening: int, close: int, members: list[_Member], new: str, indent: str, level: int) -> str:
    line = f"\n{indent * (level + 1)}" if indent else ""
    if members:
        end = members[-1].end
        return f"{text[:end]},{line or ' '}{new}{text[end:]}"
    tail = f"\n{indent * level}" if indent else ""
    return f"{text[: opening + 1]}{line}{new}{tail}{text[close:]}"


def drop_member(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`; unchanged if there is none. The text must be a valid JSON object."""
    at = _skip(text, 0)
    for key in path[:-1]:
        found = next((m for m in reversed(_members(text, at)[0]) if m.key == key), None)
        if found is None:
            return text
        at = found.value
    members, close = _members(text, at)
    index = next((i for i, m in enumerate(members) if m.key == path[-1]), None)
    if index is None:
        return text
    if len(members) == 1:
        return text[: at + 1] + text[close:]
    if index == len(members) - 1:
        return text[: members[index - 1].end] + text[members[index].end :]
    return text[: members[index].start] + text[members[index + 1].start :]
