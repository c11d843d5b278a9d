"""Fractions of GPUs and amounts of memory as options take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vgpud.core.units import UnitError, parse_bytes, parse_gpus

if TYPE_CHECKING:
    IntParam = click.ParamType[int]
else:
    IntParam = click.ParamType  # not generic at run time in older releases


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
