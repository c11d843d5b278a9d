"""Fractions of GPUs, amounts of memory and the word "default" as options take them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from vgpud.core.units import MILLI_PER_DEVICE, UnitError, parse_bytes, parse_gpus

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    AnyParam = click.ParamType[Any]
    IntParam = click.ParamType[int]
else:
    AnyParam = IntParam = click.ParamType  # not generic at run time in older releases


#: word that resets an option of `slice set`
DEFAULT = "default"


class OrDefault(AnyParam):
    """The values of another type, or the word that resets to the default, which becomes DEFAULT."""

    def __init__(self, inner: AnyParam) -> None:
        self.inner = inner
        self.name = inner.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return self.inner.get_metavar(param, ctx)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == DEFAULT else self.inner.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        word = [CompletionItem(DEFAULT)] if DEFAULT.startswith(incomplete) else []
        return [*self.inner.shell_complete(ctx, param, incomplete), *word]


class Whole(click.IntRange):
    """A whole number within limits, named so in error messages."""

    name = "whole number"


class Number(click.FloatRange):
    """A number within limits; refuses "nan", which would pass them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a valid number", param, ctx)
        return number


class Gpus(IntParam):
    """A fraction of GPUs, at most three decimals; becomes milli-GPU."""

    name = "gpus"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_gpus(str(value), zero=self.zero)
        except UnitError as error:
            self.fail(str(error), param, ctx)


class LinkPart(Gpus):
    """A part of a device's link to the host, at most three decimals; becomes thousandths."""

    name = "part"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            milli = value if isinstance(value, int) else parse_gpus(str(value), zero=self.zero)
        except UnitError:
            milli = -1
        if not 0 <= milli <= MILLI_PER_DEVICE:
            self.fail(f"{value!r} is no part of a link: write one up to 1, for example 0.3", param, ctx)
        return milli


class Bytes(IntParam):
    """An amount of memory such as 512M, 8G or 8GB; becomes bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(str(value))
        except UnitError as error:
            self.fail(str(error), param, ctx)
