"""What vgpud.proto says, with its comments. Reads the text itself, so that checking needs no compiler."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

PROTO = Path(__file__).resolve().parent.parent / "protos" / "vgpud" / "v1alpha1" / "vgpud.proto"
_OPEN = re.compile(r"(message|service) (\w+) \{(\})?")
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")
_FIELD = re.compile(r"(optional |repeated )?(map<\w+, \w+>|[\w.]+) (\w+) = \d+;(?: // (.*))?")
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
class Proto:
    comment: str  # of the whole file
    messages: dict[str, Block] = field(default_factory=dict)
    services: dict[str, Block] = field(default_factory=dict)

    def find_uncommented(self) -> list[str]:
        """Everything that needs a comment and has none: fields, methods, services, and messages other than requests
        and responses, which their methods describe."""
        blocks = [*self.messages.values(), *self.services.values()]
        missing = [b.name for b in blocks if not b.comment and not b.name.endswith(("Request", "Response"))]
        missing += [f"{b.name}.{f.name}" for b in blocks for f in b.fields if not f.comment]
        return missing + [f"{b.name}.{m.name}" for b in blocks for m in b.methods if not m.comment]


def parse(text: str) -> Proto:
    """Raises ValueError with the line that is not understood."""
    head, _, body = text.partition('syntax = "proto3";')
    made = Proto("\n".join(line.removeprefix("//").removeprefix(" ") for line in head.strip().splitlines()))
    waiting: list[str] = []  # comment lines above the next thing
    block: Block | None = None
    for line in map(str.strip, body.splitlines()):
        if line.startswith("//"):
            waiting.append(line.removeprefix("//").strip())
            if _SECTION.fullmatch(waiting[-1]):
                waiting.clear()
            continue
        comment, waiting = " ".join(waiting), []
        if not line or line.startswith(("package ", "import ", "reserved ")):
            continue
        if opened := _OPEN.fullmatch(line):
            block = Block(opened[2], comment)
            (made.messages if opened[1] == "message" else made.services)[block.name] = block
        elif line == "}":
            block = None
        elif block and (rpc := _RPC.fullmatch(line)):
            streams = bool(rpc[2]), bool(rpc[4])
            block.methods.append(Method(rpc[1], rpc[3], rpc[5], streams, comment))
        elif block and (found := _FIELD.fullmatch(line)):
            said = " ".join(filter(None, (comment, found[4])))
            block.fields.append(Field(found[3], (found[1] or "").strip(), found[2], said))
        else:
            raise ValueError(f"{PROTO.name}: {line!r} is not understood: extend tools/proto.py")
    return made


def load() -> Proto:
    return parse(PROTO.read_text())
