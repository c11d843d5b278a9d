"""What vgpud.proto says, with its comments. Reads the text itself, so that checking needs no compiler."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

PROTO = Path(__file__).resolve().parent.parent / "protos" / "vgpud" / "v1alpha1" / "vgpud.proto"
_OPEN = re.compile(r"(message|service|enum) (\w+) \{(\})?")
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")
_FIELD = re.compile(r"(optional |repeated )?(map<\w+, \w+>|[\w.]+) (\w+) = \d+;(?: // (.*))?")
_VALUE = re.compile(r"([A-Z][A-Z0-9_]*) = (\d+);(?: // (.*))?")
_SECTION = re.compile(r"-{4} .* -{4}")


@dataclass
class Field:
    name: str
    label: str  # "", optional or repeated
    type: str  # as written: int64, Slice, map<string, double>, google.protobuf.Timestamp
    comment: str


@dataclass
class Method:
    name: str
    request: str
    response: str
    streams: tuple[bool, bool]  # requests, answers
    comment: str


@dataclass
class Block:
    """A message or a service."""

    name: str
    comment: str
    fields: list[Field] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)


@dataclass
class Value:
    """Of an enum. The word is what people and JSON see of it: JOB_STATE_TIMED_OUT is timed_out, and the one that is not
    specified is empty."""

    name: str
    word: str
    comment: str


@dataclass
class Enum:
    name: str
    comment: str
    values: list[Value] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).upper() + "_"


@dataclass
class Proto:
    comment: str  # of the whole file
    messages: dict[str, Block] = field(default_factory=dict)
    services: dict[str, Block] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)

    def find_uncommented(self) -> list[str]:
        """Everything that needs a comment and has none: fields, methods, services, and messages other than requests
        and responses, which their methods describe."""
        blocks = [*self.messages.values(), *self.services.values()]
        missing = [b.name for b in blocks if not b.comment and not b.name.endswith(("Request", "Response"))]
        missing += [f"{b.name}.{f.name}" for b in blocks for f in b.fields if not f.comment]
        missing += [v.name for e in self.enums.values() for v in e.values if not v.comment]
        missing += [e.name for e in self.enums.values() if not e.comment]
        return missing + [f"{b.name}.{m.name}" for b in blocks for m in b.methods if not m.comment]


def parse(text: str) -> Proto:
    """Raises ValueError with the line that is not understood."""
    head, _, body = text.partition('syntax = "proto3";')
    made = Proto("\n".join(line.removeprefix("//").removeprefix(" ") for line in head.strip().splitlines()))
    waiting: list[str] = []  # comment lines above the next thing
    block: Block | None = None
    enum: Enum | None = None
    for line in map(str.strip, body.splitlines()):
        if line.startswith("//"):
            waiting.append(line.removeprefix("//").strip())
            if _SECTION.fullmatch(waiting[-1]):
                waiting.clear()
            continue
        comment, waiting = " ".join(waiting), []
        if not line or line.startswith(("package ", "import ", "reserved ")):
            continue
        opened = _OPEN.fullmatch(line)
        if opened and opened[1] == "enum":
            enum = made.enums[opened[2]] = Enum(opened[2], comment)
        elif opened:
            block = Block(opened[2], comment)
            (made.messages if opened[1] == "message" else made.services)[block.name] = block
        elif line == "}":
            block, enum = None, None
        elif enum and (value := _VALUE.fullmatch(line)):
            _add_value(enum, value, comment)
        elif block and (rpc := _RPC.fullmatch(line)):
            streams = bool(rpc[2]), bool(rpc[4])
            block.methods.append(Method(rpc[1], rpc[3], rpc[5], streams, comment))
        elif block and (found := _FIELD.fullmatch(line)):
            said = " ".join(filter(None, (comment, found[4])))
            block.fields.append(Field(found[3], (found[1] or "").strip(), found[2], said))
        else:
            raise ValueError(f"{PROTO.name}: {line!r} is not understood: extend tools/proto.py")
    return made


def _add_value(enum: Enum, value: re.Match[str], comment: str) -> None:
    """Raises ValueError for a name without the enum's prefix, and for a number that is not the next one."""
    name, number = value[1], int(value[2])
    word = name.removeprefix(enum.prefix).lower()
    if word == name.lower() or number != len(enum.values) or (number == 0) != (word == "unspecified"):
        raise ValueError(f"{PROTO.name}: {name} = {number}: write {enum.prefix}..., counted from UNSPECIFIED = 0")
    comment = " ".join(filter(None, (comment, value[3])))
    enum.values.append(Value(name, "" if number == 0 else word, comment))


def load() -> Proto:
    return parse(PROTO.read_text())
