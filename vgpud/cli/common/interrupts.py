"""Ctrl-C, wherever it arrives: a library that it interrupts may raise an error of its own in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def by_interrupt(error: BaseException) -> bool:
    """Whether this is Ctrl-C, or what its handling raised."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """For a command that runs until Ctrl-C: that is no failure."""
    try:
        yield
    except BaseException as error:
        if not by_interrupt(error):
            raise
