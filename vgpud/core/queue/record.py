"""Events and commands of the queue as plain data and back, so that what a daemon decided can be written and replayed.

Made from the dataclasses themselves: a new field needs nothing here. Fields that have their default are left out, so
recordings of older versions can be read where a field has been added. What a job runs (`JobSpec.run`) is the shell's
and not kept: the machine never looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from vgpud.core.jobs import events

Plain = dict[str, Any]
Decoder = Callable[[Any], Any]
_decoders: dict[Any, Decoder] = {}
_UNIONS = (Union, type(int | None))
_SIMPLE = frozenset((int, str, bool, float, type(None)))
_LEFT_OUT = "run"
#: class -> its fields with their types
_known: dict[type, list[tuple[Field[Any], Any]]] = {}
_MESSAGE_TYPES: dict[str, type] = {kind.__name__: kind for kind in (*get_args(events.Event), *get_args(events.Command))}


def to_plain(message: events.Event | events.Command) -> Plain:
    """An event or a command as JSON values; "type" is its class."""
    return {"type": type(message).__name__, **_encode(message)}


def from_plain(data: Plain) -> Any:
    """The event or command again. Raises ValueError that names what is unknown or missing."""
    name = data.get("type")
    if name not in _MESSAGE_TYPES:
        raise ValueError(f"type {name!r} is not an event or command: one of {', '.join(sorted(_MESSAGE_TYPES))}")
    return decode(_MESSAGE_TYPES[name], {key: value for key, value in data.items() if key != "type"})


def encode(value: Any) -> Any:
    """Any value of the queue's model as JSON values."""
    if type(value) in _SIMPLE:  # most are: an array has 10,000 jobs of 40 values
        return value
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return _encode(value)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, data: Any) -> Any:
    """What `encode` made of a value of this type. Raises ValueError."""
    return _decoder(kind)(data)


def _decoder(kind: Any) -> Decoder:
    """Made once for each type: a daemon that starts decodes all its jobs."""
    made = _decoders.get(kind)
    if made is None:
        made = _decoders[kind] = _make_decoder(kind)
    return made


def _make_decoder(kind: Any) -> Decoder:
    if get_origin(kind) in _UNIONS:
        known = _decoder(next(one for one in get_args(kind) if one is not type(None)))
        return lambda data: None if data is None else known(data)
    if get_origin(kind) in (tuple, list):
        return _items_decoder(get_origin(kind), list(get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        return _dataclass_decoder(kind)
    if kind in (int, str, bool):
        return lambda data: data if type(data) is kind else _refuse(kind, data)
    return lambda data: data


def _refuse(kind: type, data: Any) -> Any:
    raise ValueError(f"{data!r} is no {kind.__name__}")


def _items_decoder(sequence: Any, item_types: list[Any]) -> Decoder:
    many = len(item_types) == 1 or item_types[-1] is Ellipsis
    each = _decoder(item_types[0])
    known = [] if many else [_decoder(kind) for kind in item_types]

    def items(data: Any) -> Any:
        if not isinstance(data, list):
            raise ValueError(f"{data!r} is not a list")
        if many:
            return sequence([each(item) for item in data])
        if len(known) != len(data):
            raise ValueError(f"{data!r} has {len(data)} items, not {len(known)}")
        return sequence([one(item) for one, item in zip(known, data, strict=True)])

    return items


def _fields(kind: Any) -> list[tuple[Field[Any], Any]]:
    if kind not in _known:
        hints = get_type_hints(kind)
        _known[kind] = [(field, hints[field.name]) for field in fields(kind) if field.name != _LEFT_OUT]
    return _known[kind]


def _encode(value: Any) -> Plain:
    found = {}
    for field, _ in _fields(type(value)):
        own = getattr(value, field.name)
        if field.default is MISSING or own != field.default:
            found[field.name] = encode(own)
    return found


def _dataclass_decoder(kind: Any) -> Decoder:
    known = {field.name: _decoder(hint) for field, hint in _fields(kind)}

    def decode_object(data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError(f"{data!r} is no {kind.__name__}")
        unknown = sorted(data.keys() - known.keys())
        if unknown:
            raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
        try:
            return kind(**{name: known[name](value) for name, value in data.items()})
        except TypeError as error:  # a field without a default is missing
            raise ValueError(f"{kind.__name__}: {error}") from error

    return decode_object
