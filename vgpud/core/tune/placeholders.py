"""Placeholders in a command: `{batch}` and `{workers}`; `{{batch}}` is the text itself, `${NAME}` a shell's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: an escaped pair of braces, or a placeholder
_PART = re.compile(r"(?<![${])\{(\{[a-z_]+\})\}|(?<![${])\{([a-z_]+)\}(?!\})")


def find_names(words: Sequence[str]) -> list[str]:
    """The names between braces, known or not, each once."""
    return list(dict.fromkeys(name for word in words for _, name in _PART.findall(word) if name))


def fill(word: str, values: Mapping[str, int]) -> str:
    """The word with values in the places of its names; each name has one."""
    return _PART.sub(lambda found: found[1] or str(values[found[2]]), word)


def match(template: Sequence[str], command: Sequence[str]) -> dict[str, int] | None:
    """The values with which the template is this command; None: it is another command."""
    if len(template) != len(command):
        return None
    values: dict[str, int] = {}
    for word, text in zip(template, command, strict=True):
        names: list[str] = []
        pattern, end = "", 0
        for found in _PART.finditer(word):
            pattern += re.escape(word[end : found.start()])
            end = found.end()
            if found[2]:
                names.append(found[2])
            pattern += r"([0-9]{1,18})" if found[2] else re.escape(found[1])
        same = re.fullmatch(pattern + re.escape(word[end:]), text)
        if same is None:
            return None
        for name, number in zip(names, same.groups(), strict=True):
            if values.setdefault(name, int(number)) != int(number):
                return None
    return values
