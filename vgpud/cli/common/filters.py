"""The filters of lists, the same in each: by user, state and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.quantities import AnyParam
from vgpud.cli.common.times import When
from vgpud.cli.common.users import User
from vgpud.v1alpha1.words import JOB_STATE, SUSPENSION

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from vgpud.v1alpha1 import vgpud_pb2 as pb

Command = Callable[..., Any]
JOB_STATES = JOB_STATE.words
SLICE_STATES = ("active", "idle", "paused", "evicted")


class States(AnyParam):
    """States, separated by commas."""

    name = "states"

    def __init__(self, state_names: Sequence[str]) -> None:
        self._known = state_names

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip().lower().replace("-", "_") for word in str(value).split(","))
        for word in words:
            if word not in self._known:
                self.fail(f"there is no state {word!r}: choose from {', '.join(self._known)}", param, ctx)
        return tuple(dict.fromkeys(words))


def user_option(text: str) -> Callable[[Command], Command]:
    """-u: the keyword `uid`, None: all users."""
    return click.option("-u", "--user", "uid", type=User(), default=None, metavar="USER", help=text)


def state_option(state_names: Sequence[str], text: str) -> Callable[[Command], Command]:
    """--state: the keyword `states`, (): any."""
    said = f"{text}: {', '.join(state_names)}; several are separated by commas."
    return click.option(
        "--state",
        "states",
        type=States(state_names),
        multiple=True,
        callback=_join,
        metavar="STATE",
        help=said,
    )


def _join(ctx: click.Context, param: click.Parameter, values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """An option that is given again adds its states."""
    return tuple(dict.fromkeys(state for states in values for state in states))


def since_option(text: str) -> Callable[[Command], Command]:
    """--since: the keyword `since`, ns since 1970, None: everything."""
    return click.option("--since", type=When(), default=None, metavar="MOMENT", help=text)


def is_since(stamp: Timestamp, since_ns: int | None) -> bool:
    return since_ns is None or stamp.seconds * 10**9 + stamp.nanos >= since_ns


def slice_state(item: pb.Slice) -> str:
    """One of SLICE_STATES; a slice that is being evicted or restored has its memory on the host in part."""
    if item.suspended:
        return "paused" if item.suspended == SUSPENSION.to_number("paused") else "evicted"
    return "active" if item.processes else "idle"
