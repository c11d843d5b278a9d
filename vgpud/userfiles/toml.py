"""TOML of users: keys and nesting are bounded before parsing, because parsers take time by the square of a key's parts.

A key of 400 KB and 200,000 parts took tomllib more than a minute and 3 GB.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from vgpud.userfiles.bounded import FileError, read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: parts of a dotted key, bytes of each, and tables or lists in each other
KEY_PARTS_MAX, KEY_CHARS_MAX, NESTING_MAX = 16, 256, 32
FILE_BYTES_MAX = 512 << 10

#: comments and whole strings first, so that their contents are skipped; a remaining quote was never closed
_TOKENS = re.compile(
    r'(?P<skip>#[^\n]*|"""(?:\\.|[^\\])*?"""+|'
    r"'''.*?'''+|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*')"
    r"""|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<end>[,=\n])|(?P<unclosed>["'])|(?P<bare>[^\s"'#\[\]{},.=]+)""",
    re.DOTALL,
)


def read(path: Path) -> dict[str, Any]:
    """The file's table. Raises FileError with the line of the error."""
    return parse(path, read_text(path, FILE_BYTES_MAX))


def parse(path: Path, text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises FileError with the line of the error."""
    text = text.replace("\r\n", "\n")
    wrong = _too_much(text)
    if wrong:
        raise FileError(f"{path} line {wrong[0]}: {wrong[1]}")
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise FileError(f"{path} is not TOML: {error}") from error
    return found


def _too_much(text: str) -> tuple[int, str] | None:
    """(line, reason) where the text exceeds a bound. The parser reports all other errors."""
    depth = parts = 0
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        why = ""
        if kind == "unclosed":
            return None
        if kind == "open":
            depth, parts = depth + 1, 0
            if depth > NESTING_MAX:
                why = f"tables and lists are nested more than {NESTING_MAX} deep, which is the limit"
        elif kind == "close":
            depth, parts = depth - 1, 0
        elif kind == "end":
            parts = 0
        elif kind == "dot":
            parts += 1
            if parts >= KEY_PARTS_MAX:
                why = f"a key has more than {KEY_PARTS_MAX} parts with dots between them, which is the limit"
        elif kind == "bare" and len(token.group()) > KEY_CHARS_MAX:
            why = f"a key or number has {len(token.group())} characters: {KEY_CHARS_MAX} is the limit"
        if why:
            return text.count("\n", 0, token.start()) + 1, why
    return None
