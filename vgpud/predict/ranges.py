"""A model's range of validity: the families, devices and values of its training data. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.predict.features import FEATURES, Features

#: features that count types of operations: a model that never saw one knows nothing of it
COUNTED_FEATURES = {
    "convolutions": "convolutions",
    "attentions": "attention layers",
    "recurrents": "recurrent layers",
    "embeddings": "embedding tables",
    "norms": "normalisations",
}
#: features that are looked at for their size; the others follow from these, or are of the device
SIZES = (
    *("training", "optimizer_states", "element_bytes"),
    *("batch", "inputs", "outputs", "layers", "parameters", "activations", "flops"),
)
#: features of the device, not of the model
DEVICE = ("sm_count", "bandwidth", "peak_flops")
#: a number may be so much beyond what was seen
SLACK = 1.1
#: intervals on a device that was never measured, in logarithms
OTHER_DEVICE = 2.0
#: operations that any model may have: they cost what their bytes cost, as an activation does
PLAIN_OPERATIONS = ("copy", "pointwise", "product", "reduction")
NAMES_MAX, NAME_MAX = 1_000, 100
SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a prediction is within what was trained on, how much wider its intervals are, and why, as a sentence."""

    is_in_range: bool
    widen: float = 1.0
    why: str = ""


@dataclass(frozen=True)
class Trained:
    """The ranges of a model's training data."""

    families: tuple[str, ...]
    devices: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]  # by feature: least and most
    ingredients: tuple[str, ...] = ()  # types of operations; (): not known

    def judge(self, job_features: Features, ingredients: Collection[str] = ()) -> Judged:
        """The first thing that is outside decides the sentence: types of operations, then sizes, then the device."""
        seen = _join_names(self.families)
        for name, words in COUNTED_FEATURES.items():
            if name in self.ranges and self.ranges[name][1] == 0 and job_features.values.get(name, 0.0) > 0:
                return Judged(
                    False,
                    OTHER_DEVICE,
                    f"out of range: the model has {job_features[name]:g} {words}, "
                    f"and this predictor was trained on {seen} "
                    "without any; train one on measurements of your own (vgpu predict train)",
                )
        unseen = tuple(sorted(set(ingredients) - {*self.ingredients, *PLAIN_OPERATIONS})) if self.ingredients else ()
        if unseen:
            return Judged(
                False,
                OTHER_DEVICE,
                f"out of range: the model has {_join_names(unseen)}, and this predictor was trained on {seen} without",
            )
        outside = next((name for name in SIZES if not self._has(name, job_features)), None)
        if outside is not None:
            least, most = self.ranges[outside]
            span = f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
            return Judged(
                False,
                OTHER_DEVICE,
                f"out of range: {outside} ({FEATURES[outside]}) is {job_features[outside]:.4g}, and this predictor was "
                f"trained on {span}",
            )
        if not all(self._has(name, job_features) for name in DEVICE):
            where = _join_names(self.devices)
            return Judged(True, OTHER_DEVICE, f"measured on {where} only: intervals are wider for this device")
        return Judged(True)

    def _has(self, name: str, job_features: Features) -> bool:
        """Whether such a value was seen, or one that is hardly another."""
        if name not in self.ranges or name not in job_features.values:
            return True
        least, most = self.ranges[name]
        return least / SLACK <= job_features[name] <= most * SLACK


def _join_names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def as_json(training_ranges: Trained) -> dict[str, Any]:
    """The part of a model file."""
    return {
        "families": list(training_ranges.families),
        "devices": list(training_ranges.devices),
        "ranges": {name: list(pair) for name, pair in training_ranges.ranges.items()},
        "ingredients": list(training_ranges.ingredients),
    }


def parse(data: Any) -> Trained:
    """That of a model file. Raises ValueError."""
    if not isinstance(data, dict) or not isinstance(data["ranges"], dict):
        raise ValueError("the training ranges are not a table")
    ingredients = data.get("ingredients", [])  # files from before they were written have none
    for key, names in (("families", data["families"]), ("devices", data["devices"]), ("ingredients", ingredients)):
        good = isinstance(names, list) and len(names) <= NAMES_MAX and (names or key == "ingredients")
        if not good or not all(isinstance(name, str) and 0 < len(name) <= NAME_MAX for name in names):
            raise ValueError(f"{key} is not a list of names")
    found: dict[str, tuple[float, float]] = {}
    for name, pair in data["ranges"].items():
        numbers = isinstance(pair, list) and len(pair) == 2 and all(type(x) in (int, float) for x in pair)
        if name not in FEATURES or not numbers or not all(map(math.isfinite, pair)) or pair[0] > pair[1]:
            raise ValueError(f"range of {name[:40]!r} is invalid")
        found[name] = (float(pair[0]), float(pair[1]))
    return Trained(tuple(data["families"]), tuple(data["devices"]), found, tuple(ingredients))
