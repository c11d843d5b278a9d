"""Speeds of jobs' models on models of GPUs: how tables, users, Slurm and drivers call both."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: the speed on the GPU where a model is fastest
FASTEST_MILLI = 1000

#: (model of a GPU, thousandths of the highest speed)
Speeds = tuple[tuple[str, int], ...]


def relative(rates: Mapping[str, float]) -> Speeds:
    """Rates of one model by GPU, in any unit, as thousandths of the highest, at least 1."""
    highest = max(rates.values())
    return tuple((gpu, max(1, round(FASTEST_MILLI * (rate / highest)))) for gpu, rate in sorted(rates.items()))


def model_key(model: str) -> str:
    """A job's model, however it is written: "ResNet-50", "resnet_50" and "resnet50" are "resnet50"."""
    return "".join(letter for letter in model.lower() if letter.isalnum())


def words(gpu: str) -> tuple[str, ...]:
    """Of a GPU's name: "Tesla V100-SXM2-16GB" and Slurm's tesla_v100-sxm2-16gb have the same."""
    return tuple(re.findall(r"[^\W_]+", gpu.lower()))


def speed_on(speeds: Speeds, gpu: str) -> int | None:
    """Thousandths of the highest on a GPU of that name; None = not known.

    A name stands for all GPUs in whose name its words are, one after another: v100 for "Tesla V100-SXM2-16GB". Of
    several such names the one with most words counts, so that "A100 80GB" can differ from "A100".
    """
    found: int | None = None
    most, wanted = 0, words(gpu)
    for name, speed_milli in speeds:
        part = words(name)
        if len(part) > most and _has(wanted, part):
            most, found = len(part), speed_milli
    return found


def _has(all_: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(all_[at : at + len(part)] == part for at in range(len(all_) - len(part) + 1))
