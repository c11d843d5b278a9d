"""Makes docs/api.md and parts of the Python client from vgpud.proto and the asyncio client; `--check` compares.

The check also names everything in the proto that has no comment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from proto import Block, Field, Proto, load

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "vgpud" / "client"
WORDS = ROOT / "vgpud" / "v1alpha1" / "words.py"
#: scalar types of the proto in Python, with the value of a field that is not set
_SCALARS = {"string": ("str", '""'), "bool": ("bool", "False"), "double": ("float", "0.0")}
_SCALARS |= dict.fromkeys(("int32", "int64", "uint32", "uint64"), ("int", "0"))
_TIMES = {"google.protobuf.Timestamp": "datetime", "google.protobuf.Duration": "timedelta"}
#: messages that the client returns under another name, and those that it has no use for
_RENAMED = {"WatchSlicesResponse": "Snapshot"}
_LEFT_OUT = ("TraceEvent", "ArbiterParams")
#: made from -> to
_SYNC_FILES = {"async_connection.py": "connection.py", "async_client.py": "sync_client.py"}
#: word for word, from asyncio to threads
_SYNC = (
    (r"for asyncio programs:", "for programs:"),
    (r"The (client|one) for other programs, .*", "Made from the one for asyncio: change that, and run `make gen`."),
    (r"\bimport asyncio\n", ""),
    (r"open_async_channel", "open_channel"),
    (r"AsyncIterator", "Iterator"),
    (r"async_connection", "connection"),
    (r"Async(Connection|Client|Slice|Job)\b", r"\1"),
    (r"asynccontextmanager", "contextmanager"),
    (r"`(async with|await) client", lambda match: "`with client" if match[1] == "async with" else "`client"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"await asyncio\.to_thread\(([\w.]+)(?:, )?", r"\1("),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
)  # fmt: skip


def _python_type(proto: Proto, field: Field) -> tuple[str, str]:
    """A field's annotation and default."""
    if field.type.startswith("map<"):
        key, value = field.type[4:-1].split(", ")
        return f"Mapping[{_SCALARS[key][0]}, {_SCALARS[value][0]}]", "field(default_factory=dict)"
    scalar = (field.type, '""') if field.type in proto.enums else _SCALARS.get(field.type)
    name = scalar[0] if scalar else _TIMES.get(field.type, field.type)
    if field.label == "repeated":
        return f"tuple[{name}, ...]", "()"
    if field.label == "optional" or not scalar:
        return f"{name} | None", "None"
    return scalar


def _classes(proto: Proto) -> Iterator[Block]:
    for block in proto.messages.values():
        if block.name in _RENAMED:
            yield Block(_RENAMED[block.name], "All slices and devices at one moment.", block.fields)
        elif not block.name.endswith(("Request", "Response")) and block.name not in _LEFT_OUT:
            yield block


def model(proto: Proto) -> str:
    """vgpud/client/model.py."""
    lines = [
        '"""What the client gives and takes: one dataclass for each message of the API, with its comments.',
        "",
        "Made from vgpud.proto by tools/api.py: change that one, and run `make gen`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "from dataclasses import dataclass, field",
        "from datetime import datetime, timedelta",
        "from typing import Literal",
    ]
    for enum in proto.enums.values():
        lines += ["", *_wrap_text(f"{enum.comment} Empty: {enum.values[0].comment}.", "#: ", 118)]
        lines += [f"{enum.name} = Literal[{', '.join(repr(value.word) for value in enum.values)}]"]
    for block in _classes(proto):
        lines += ["", "", "@dataclass(frozen=True, kw_only=True)", f"class {block.name}:"]
        lines += [*_wrap_text(block.comment, '    """', 112, '"""'), ""]
        for one in block.fields:
            kind, default = _python_type(proto, one)
            lines += [*_wrap_text(one.comment, "    #: ", 118), f"    {one.name}: {kind} = {default}"]
    return "\n".join(lines) + "\n"


def _wrap_text(text: str, start: str, width: int, end: str = "") -> list[str]:
    """Text in lines; of a docstring only the first one has the start."""
    later = start if start.endswith("#: ") else " " * (len(start) - len(start.lstrip()))
    lines, line = [], start
    for word in text.split():
        if len(line) + len(word) > width and line.strip() not in ("#:", '"""'):
            lines.append(line.rstrip())
            line = later
        line += word + " "
    return [*lines, line.rstrip() + end]


def synchronous(source: str) -> str:
    """The same module without asyncio."""
    text = (CLIENT / source).read_text()
    for pattern, new in _SYNC:
        text = re.sub(pattern, new, text)
    assert "async" not in text.replace("asyncio: change", ""), f"{source} has a word that tools/api.py does not know"
    return text


def words(proto: Proto) -> str:
    """The module of the words."""
    lines = [
        '"""Words of the API\'s enums, for people and JSON: JOB_STATE_TIMED_OUT is "timed_out", UNSPECIFIED is "".',
        "",
        "Made from vgpud.proto by tools/api.py: change that one, and run `make gen`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING, Generic, TypeVar",
        "",
        "if TYPE_CHECKING:",
        "    from vgpud.v1alpha1 import vgpud_pb2 as pb",
        "",
        'N = TypeVar("N", bound=int)',
        "",
        "",
        "class Words(Generic[N]):",
        '    """Of one enum, in the order of its numbers."""',
        "",
        "    def __init__(self, *words: str) -> None:",
        '        self.words = words  # without "", which is 0',
        '        self._by_number = ("", *words)',
        "        self._numbers: dict[str, int] = {word: number for number, word in enumerate(self._by_number)}",
        "",
        "    def to_word(self, number: int) -> str:",
        '        """Of a value that a later version has: its number."""',
        "        return self._by_number[number] if 0 <= number < len(self._by_number) else str(number)",
        "",
        "    def to_number(self, word: str) -> N:",
        '        """Raises ValueError, one sentence, for another word."""',
        "        if word not in self._numbers:",
        "            raise ValueError(f\"{word!r} is not known: choose from {', '.join(self.words)}\")",
        "        return self._numbers[word]  # type: ignore[return-value]",
        "",
        "",
    ]
    for enum in proto.enums.values():
        found = ", ".join(f'"{value.word}"' for value in enum.values[1:])
        lines.append(f"{enum.prefix[:-1]}: Words[pb.{enum.name}] = Words({found})")
    lines += ["", "#: by the enum's name", "ENUMS: dict[str, Words[int]] = {"]
    lines += [f'    "{enum.name}": {enum.prefix[:-1]},' for enum in proto.enums.values()]
    return "\n".join([*lines, "}"]) + "\n"


def document(proto: Proto) -> str:
    """docs/api.md."""
    lines = [(ROOT / "tools" / "api_head.txt").read_text().rstrip(), "", "## In general", ""]
    lines += [proto.comment.strip(), ""]
    shown: set[str] = set()
    for service in proto.services.values():
        lines += [f"## {service.name}", "", service.comment, ""]
        for method in service.methods:
            request_text, response_text = (
                _describe_message(method.request, method.streams[0]),
                _describe_message(method.response, method.streams[1]),
            )
            lines += [f"### {method.name}", "", f"{method.comment} {request_text} → {response_text}", ""]
            for name in (method.request, method.response):
                shown.add(name)
                lines += _table(proto.messages[name])
    lines += ["## Messages", ""]
    for block in proto.messages.values():
        if block.name not in shown:
            lines += [f"### {block.name}", "", block.comment, "", *_table(block)]
    lines += ["## Enums", ""]
    for enum in proto.enums.values():
        rows = [f"| `{v.name}` | {f'`{v.word}`' if v.word else ''} | {v.comment} |" for v in enum.values]
        lines += [f"### {enum.name}", "", enum.comment, ""]
        lines += [f"| value of `{enum.name}` | word | meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _describe_message(name: str, stream: bool) -> str:
    return f"stream of `{name}`" if stream else f"`{name}`"


def _table(block: Block) -> list[str]:
    if not block.fields:
        return [f"`{block.name}` has no fields.", ""]
    rows = [
        f"| `{f.name}` | {' '.join(filter(None, (f.label, f.type)))} | {f.comment.replace('|', chr(92) + '|')} |"
        for f in block.fields
    ]
    return [f"| field of `{block.name}` | type | meaning |", "| --- | --- | --- |", *rows, ""]


def _format_source(text: str, name: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", name, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def drafts() -> dict[Path, str]:
    """Every generated file with its text, Python not yet in its layout (ruff, which only `dev` installs, makes that).

    Raises SystemExit when the proto lacks comments.
    """
    proto = load()
    missing = proto.find_uncommented()
    if missing:
        sys.exit(f"vgpud.proto: write a comment, with unit and special values, for: {', '.join(missing)}")
    made = {CLIENT / to: synchronous(source) for source, to in _SYNC_FILES.items()}
    return made | {CLIENT / "model.py": model(proto), WORDS: words(proto), ROOT / "docs" / "api.md": document(proto)}


def outputs() -> dict[Path, str]:
    """Every generated file as it is committed."""
    return {p: _format_source(text, p.name) if p.suffix == ".py" else text for p, text in drafts().items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    if not parser.parse_args().check:
        for path, text in outputs().items():
            path.write_text(text)
        return 0
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what tools/api.py makes: run `make gen`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
