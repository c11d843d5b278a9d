"""Between protobuf's messages and the dataclasses of vgpud.client.model, field by field of the same name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from vgpud.client import model
from vgpud.client.failures import make_error
from vgpud.errors import ExitCode
from vgpud.v1alpha1 import words

T = TypeVar("T")
M = TypeVar("M")

_TIME, _SPAN = "google.protobuf.Timestamp", "google.protobuf.Duration"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: messages whose dataclass has another name
_NAMES = {"WatchSlicesResponse": "Snapshot"}


def read(cls: Callable[..., T], message: Any) -> T:
    """The dataclass of a message; what it does not set is None, or the type's zero."""
    return cls(**{field.name: _read_field(message, field) for field in message.DESCRIPTOR.fields})


def _read_field(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        return dict(value)
    if _is_list(value):
        return tuple(_read_value(field, one) for one in value)
    if field.has_presence and not message.HasField(field.name):
        return None
    return _read_value(field, value)


def _read_value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        return words.ENUMS[field.enum_type.name].to_word(value)
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIME:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if field.message_type.full_name == _SPAN:
        return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return read(getattr(model, _NAMES.get(field.message_type.name, field.message_type.name)), value)


def write(cls: Callable[[], M], value: Any) -> M:
    """The message of a dataclass; None is not set."""
    message: Any = cls()
    for field in fields(value):
        _write_field(message, message.DESCRIPTOR.fields_by_name[field.name], getattr(value, field.name))
    made: M = message
    return made


def _write_field(message: Any, field: FieldDescriptor, value: Any) -> None:
    if value is None:
        return
    target = getattr(message, field.name)
    if _is_map(field):
        target.update(value)
    elif _is_list(target) and field.message_type:
        for one in value:
            write(target.add, one)
    elif _is_list(target):
        target.extend(_plain(field, one) for one in value)
    elif isinstance(value, datetime):
        target.FromNanoseconds(wall_ns(value))
    elif isinstance(value, timedelta):
        target.FromNanoseconds(round(value / timedelta(microseconds=1)) * 1000)
    elif field.message_type:
        target.SetInParent()
        write(lambda: target, value)
    elif field.has_presence or value:
        setattr(message, field.name, _plain(field, value))


def _plain(field: FieldDescriptor, value: Any) -> Any:
    """A value as the message has it: the number of a word. Raises ClientError for a word that is not known."""
    if field.enum_type is None:
        return value
    try:
        return words.ENUMS[field.enum_type.name].to_number(value)
    except ValueError as error:
        raise make_error(f"{field.name} {error}", ExitCode.USAGE) from error


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def wall_ns(time: datetime | None) -> int | None:
    """Nanoseconds since 1970; a time without a zone is local."""
    return None if time is None else round((time.astimezone(timezone.utc) - _EPOCH) / timedelta(microseconds=1)) * 1000
