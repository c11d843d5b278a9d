"""Events and commands of the queue as plain data and back, so that what a daemon decided can be written and replayed.

Made from the dataclasses themselves: a new field needs nothing here. Fields that have their default are left out, so
recordings of older versions can be read where a field has been added. What a job runs (`JobSpec.run`) is the shell's
and not kept: the machine never looks at it.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from vgpud.core.queue import events

Plain = dict[str, Any]
_UNIONS = (Union, type(int | None))
_LEFT_OUT = "run"
#: class -> its fields with their types
_known: dict[type, list[tuple[Field[Any], Any]]] = {}
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*get_args(events.Event), *get_args(events.Command))}


def to_plain(said: events.Event | events.Command) -> Plain:
    """An event or a command as what JSON can say; "type" is its class."""
    return {"type": type(said).__name__, **_encode(said)}


def from_plain(data: Plain) -> Any:
    """The event or command again. Raises ValueError that names what is unknown or missing."""
    name = data.get("type")
    if name not in _KINDS:
        raise ValueError(f"type {name!r} is no event or command: one of {', '.join(sorted(_KINDS))}")
    return decode(_KINDS[name], {key: value for key, value in data.items() if key != "type"})


def encode(value: Any) -> Any:
    """Any value of the queue's model as what JSON can say."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return _encode(value)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, data: Any) -> Any:
    """What `encode` made of a value of this type. Raises ValueError."""
    if get_origin(kind) in _UNIONS:
        if data is None:
            return None
        return decode(next(one for one in get_args(kind) if one is not type(None)), data)
    if get_origin(kind) in (tuple, list):
        return get_origin(kind)(_items(get_args(kind), data))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if is_dataclass(kind):
        return _decode(kind, data)
    if kind in (int, str, bool) and type(data) is not kind:
        raise ValueError(f"{data!r} is no {kind.__name__}")
    return data


def _items(kinds: tuple[Any, ...], data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r} is no list")
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        return [decode(kinds[0], item) for item in data]
    if len(kinds) != len(data):
        raise ValueError(f"{data!r} has {len(data)} items, not {len(kinds)}")
    return [decode(kind, item) for kind, item in zip(kinds, data, strict=True)]


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


def _decode(kind: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is no {kind.__name__}")
    known = {field.name: hint for field, hint in _fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
    try:
        return kind(**{name: decode(known[name], value) for name, value in data.items()})
    except TypeError as error:  # a field without a default is missing
        raise ValueError(f"{kind.__name__}: {error}") from error
