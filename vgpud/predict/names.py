"""What a mistyped name may stand for: the end of a message, ", did you mean A or B?"."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from vgpud.predict.graph import label

#: how much alike two names are at least, of 1
_LIKENESS = 0.6
_SUGGESTIONS_MAX = 3
#: entries of a directory that are looked at
_FILES_MAX = 10_000


def suggest(name: str, valid_names: Iterable[str], prefix: str = "", suffix: str = "") -> str:
    """The end of a message; "" where no valid name is like it. prefix, suffix: of each suggestion."""
    near = difflib.get_close_matches(name, list(valid_names), _SUGGESTIONS_MAX, _LIKENESS)
    return f", did you mean {list_names([label(prefix + each + suffix) for each in near], 'or')}?" if near else ""


def suggest_files(path: Path) -> str:
    """The same for files beside it, of its suffix."""
    return suggest(path.name, [name for name in list_files(path.parent) if name.endswith(path.suffix)])


def list_files(directory: Path) -> list[str]:
    """Names in it, not all where there are very many; none if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for _, entry in zip(range(_FILES_MAX), entries, strict=False)]
    except OSError:
        return []


def list_names(names: Iterable[str], conjunction: str = "") -> str:
    """A, B and C; without a conjunction: A, B, C."""
    *others, last = names
    if not others or not conjunction:
        return ", ".join([*others, last])
    return f"{', '.join(others)} {conjunction} {last}"
