"""Appends tables to a TOML text and removes them again; every other byte is kept.

Appending suffices, so no style-preserving library is needed: the result is parsed and compared with the intended
document before it is written.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from vgpud.setup.site import SetupError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARK = "# added by `vgpu setup`, taken out by `vgpu setup ... --undo`"


def parse(path: Path, text: str | None) -> dict[str, Any]:
    """A TOML document. Raises SetupError."""
    try:
        document: dict[str, Any] = tomllib.loads(text or "")
    except (ValueError, RecursionError) as error:  # also of a number of more digits than Python reads
        raise SetupError(f"{path} is not TOML: {error}: fix it first, nothing was changed") from error
    return document


def dig(document: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """The value below these keys; None if there is none."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else f'"{name}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def table_text(keys: Sequence[str], table: Mapping[str, Any]) -> str:
    """A table and those below it, with headers in full."""
    header = "[" + ".".join(_key(key) for key in keys) + "]"
    lines = [header, *(f"{_key(k)} = {_value(v)}" for k, v in table.items() if not isinstance(v, Mapping))]
    below = [table_text([*keys, k], v) for k, v in table.items() if isinstance(v, Mapping)]
    return "\n".join(lines) + "\n" + "".join(below)


def append_table(path: Path, text: str, keys: Sequence[str], table: Mapping[str, Any]) -> str:
    """The text with the table appended. Raises SetupError if the text's form does not allow it."""
    end = "" if not text or text.endswith("\n") else "\n"
    new = f"{text}{end}{MARK}\n{table_text(keys, table)}"
    wanted = copy.deepcopy(parse(path, text))
    place = wanted
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise SetupError(f"{path}: {key} is not a table: fix it first, nothing was changed")
    place[keys[-1]] = dict(table)
    try:
        if tomllib.loads(new) == wanted:
            return new
    except tomllib.TOMLDecodeError:
        pass  # one of the parents is written inline
    place_text = ".".join(_key(key) for key in keys[:-1])
    raise SetupError(f"{path}: {place_text} is written inline ({{...}}): write it as a table [{place_text}] first")


def drop_table(path: Path, text: str, keys: Sequence[str]) -> str:
    """The text without the table, its subtables and setup's mark. Raises SetupError if it cannot be removed."""
    kept: list[str] = []
    cutting = False
    for line in text.splitlines(True):
        header = _header(line)
        if header is not None:
            cutting = header[: len(keys)] == list(keys)
            if cutting and kept and kept[-1].strip() == MARK:
                kept.pop()
        if not cutting:
            kept.append(line)
    new = "".join(kept)
    wanted = copy.deepcopy(parse(path, text))
    (dig(wanted, keys[:-1]) or {}).pop(keys[-1], None)
    if _without_empty(parse(path, new)) != _without_empty(wanted):
        raise SetupError(f"{path}: the table {'.'.join(keys)} is not written as a table: remove it by hand")
    return new


def marked_tables(text: str, keys: Sequence[str]) -> list[str]:
    """Names of the tables right below `keys` that append_table() wrote."""
    lines = text.splitlines()
    headers = [_header(after) or [] for line, after in pairwise(lines) if line.strip() == MARK]
    return [header[-1] for header in headers if header[:-1] == list(keys)]


def _header(line: str) -> list[str] | None:
    """The keys of a table's header; None for another line."""
    stripped = line.strip()
    if not stripped.startswith("[") or stripped.startswith("[["):
        return None
    try:
        found: Any = tomllib.loads(stripped)
    except tomllib.TOMLDecodeError:
        return None
    keys = []
    while found:
        key, found = next(iter(found.items()))
        keys.append(key)
    return keys


def _without_empty(value: Any) -> Any:
    """Parent tables that held only the removed one are removed as well, if headers were in full."""
    if not isinstance(value, dict):
        return value
    inner = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item != {}}
