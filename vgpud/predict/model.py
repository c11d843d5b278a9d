"""A trained model: sums of regression trees in a JSON file, read and evaluated with the standard library.

The file is numbers and names. Nothing of it is executed; its size, depth and every index are checked before it is used,
so that a file from anywhere costs a refusal at worst. `train` writes it, and says there how intervals are made.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from vgpud.errors import ExitCode, VgpudError
from vgpud.predict import ranges
from vgpud.predict.dataset import MEASURED
from vgpud.predict.features import FEATURES, VALUE_MAX, Features
from vgpud.userfiles.bounded import FileError, read_bytes

FORMAT = "vgpud-predict-1"
SHIPPED = "mlp-a100.json"
#: what is predicted, and whether every model must
TARGETS = {"utilisation": True, "sm_activity": False, "memory_bytes": True}

FILE_BYTES_MAX = 16 << 20
TREES_MAX = 20_000
NODES_MAX = 1_000_000
DEPTH_MAX = 64


class ModelError(VgpudError):
    """A file is not a trained model."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Interval:
    """A prediction: as likely as not above `value`, and within `low`..`high` as often as the model's card says."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Shares of a device as 0..1. Out of range: only good to be shown, and `why` is a sentence that says so."""

    utilisation: Interval
    sm_activity: Interval | None  # None: not measured where the model was trained
    memory_bytes: Interval
    in_range: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes by number, 0 the root, each before its left child, which is the next one, and all of that before its right.

    `feature` < 0 is a leaf, and `number` its value; else `number` is what goes left at most.
    """

    feature: tuple[int, ...]
    number: tuple[float, ...]
    right: tuple[int, ...]

    def at(self, point: Sequence[float]) -> float:
        node = 0
        while self.feature[node] >= 0:
            node = node + 1 if point[self.feature[node]] <= self.number[node] else self.right[node]
        return self.number[node]


@dataclass(frozen=True, slots=True)
class Target:
    """log(offset + scale * measured) = start + the trees' sum [+ log(offset + scale * (base + an estimate))]."""

    offset: float
    scale: float
    start: float
    estimate: str  # name of the feature that estimates it, which trees correct; "" = none
    base: float  # what is always there besides: the context of a process that uses the device
    maximum: float  # no prediction is above it
    trees: tuple[Tree, ...]
    #: how far measured values were from predicted ones, in logarithms: by prediction, (up to, below, above)
    spread: tuple[tuple[float, float, float], ...]

    def predict(self, point: Sequence[float], job_features: Features, widen: float = 1.0) -> Interval:
        total = self.start + math.fsum(tree.at(point) for tree in self.trees)
        if self.estimate:
            total += self._log(self.base + job_features[self.estimate])
        below, above = next(((b, a) for most, b, a in self.spread if total <= most), self.spread[-1][1:])
        low, value, high = (self._invert_log(x) for x in (total - widen * below, total, total + widen * above))
        # what is always there is another device's: half of it, or twice as much
        other = self.base * (widen - 1)
        return Interval(max(0.0, low - other / 2), value, min(self.maximum, high + other))

    def _log(self, value: float) -> float:
        return math.log(self.offset + self.scale * value)

    def _invert_log(self, total: float) -> float:
        return min(self.maximum, max(0.0, (math.exp(min(total, 100.0)) - self.offset) / self.scale))


@dataclass(frozen=True)
class Model:
    """What was read from a file."""

    features: tuple[str, ...]
    targets: Mapping[str, Target]
    training_ranges: ranges.Trained
    card: Mapping[str, Any]

    def predict(self, job_features: Features, ingredients: Collection[str] = ()) -> Predicted:
        """ingredients: the types of its operations; (): not known. Raises ValueError when a feature that the model goes
        by is missing."""
        missing = [name for name in self.features if name not in job_features.values]
        if missing:
            raise ValueError(f"the model needs features that are missing: {', '.join(missing)}")
        point = coordinates([job_features[name] for name in self.features])
        found = self.training_ranges.judge(job_features, ingredients)
        intervals = {name: target.predict(point, job_features, found.widen) for name, target in self.targets.items()}
        return Predicted(
            utilisation=intervals["utilisation"],
            sm_activity=intervals.get("sm_activity"),
            memory_bytes=intervals["memory_bytes"],
            in_range=found.is_in_range,
            why=found.why,
        )


def coordinates(values: Sequence[float]) -> Sequence[float]:
    """What trees compare: logarithms, in single precision as scikit-learn has them."""
    return array("f", map(math.log1p, values))


def load(path: Path | None = None) -> Model:
    """The model of a file, or the one that is shipped. Raises ModelError, one line."""
    return _load_shipped() if path is None else parse(_read(path), str(path))


@lru_cache(maxsize=1)
def _load_shipped() -> Model:
    return parse(resources.files("vgpud.predict").joinpath(SHIPPED).read_bytes(), SHIPPED)


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # reading a pipe could block
            raise ModelError(f"cannot read {path}: it is not a regular file")
        return read_bytes(path, FILE_BYTES_MAX)
    except (FileError, OSError) as error:
        raise ModelError(f"not a trained model: {error}") from error


def parse(data: bytes, name: str) -> Model:
    """The model of such a file's contents. Raises ModelError."""
    try:
        return _model(json.loads(data))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        said = " ".join(str(error).split())[:120]
        what = f"{said} is missing" if isinstance(error, KeyError) else said or type(error).__name__
        raise ModelError(f"{name} is not a trained model ({what}): create one with `vgpu predict train`") from error


def _model(data: Any) -> Model:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not of the format {FORMAT}")
    names = tuple(_text(name) for name in _list(data["features"], len(FEATURES)))
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise ValueError(f"feature {unknown[0][:40]!r} is not known")
    counted = [0, 0]
    given = data["targets"]
    chosen = [name for name, must in TARGETS.items() if must or name in given]
    targets = {name: _target(given[name], len(names), counted, MEASURED[name]) for name in chosen}
    card = data["card"]
    if not isinstance(card, dict):
        raise ValueError("the data card is not a table")
    return Model(names, targets, ranges.parse(data["trained"]), card)


def _target(data: Any, features: int, totals: list[int], limit: float) -> Target:
    estimate = _text(data["estimate"])
    if estimate and estimate not in FEATURES:
        raise ValueError(f"feature {estimate[:40]!r} is not known")
    spread = tuple((_number(most), _number(b), _number(a)) for most, b, a in _list(data["spread"], 1000))
    if not spread or any(min(b, a) < 0 for _, b, a in spread):
        raise ValueError("an interval is missing, or its ends are reversed")
    offset, scale, most = (_number(data[key]) for key in ("offset", "scale", "most"))
    if offset <= 0 or scale <= 0 or most <= 0:
        raise ValueError("offset, scale and maximum of a target must be above 0")
    if most > limit:
        raise ValueError(f"the maximum of a target is above {limit:g}")
    trees = []
    for each in _list(data["trees"], TREES_MAX):
        trees.append(_tree(each, features))
        totals[0] += 1
        totals[1] += len(trees[-1].feature)
        if totals[0] > TREES_MAX or totals[1] > NODES_MAX:
            raise ValueError(f"more than {TREES_MAX} trees or {NODES_MAX} nodes")
    base = _number(data["base"])
    if base < 0:
        raise ValueError("the base of a target is below 0")
    return Target(offset, scale, _number(data["start"]), estimate, base, most, tuple(trees), spread)


def _tree(data: Any, features: int) -> Tree:
    """Children come after their parent, so that every walk ends; the depth follows from the numbers."""
    feature = tuple(_index(x, features, -1) for x in _list(data["feature"], NODES_MAX))
    size = len(feature)
    number = tuple(_number(x) for x in _list(data["number"], NODES_MAX))
    right = tuple(_index(x, size) for x in _list(data["right"], NODES_MAX))
    if not size or len(number) != size or len(right) != size:
        raise ValueError("a tree's columns have different lengths")
    depth = [0] * size
    for node in range(size):
        if feature[node] < 0:
            continue
        if right[node] <= node + 1:
            raise ValueError("a tree's node has a child that does not come after it")
        for child in (node + 1, right[node]):
            depth[child] = max(depth[child], depth[node] + 1)
    if max(depth) > DEPTH_MAX:
        raise ValueError(f"a tree is deeper than {DEPTH_MAX}")
    return Tree(feature, number, right)


def _list(data: Any, length_max: int) -> list[Any]:
    if not isinstance(data, list) or len(data) > length_max:
        raise ValueError(f"a list of at most {length_max} elements was expected")
    return data


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise ValueError("a name was expected")
    return data


def _number(data: Any) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float) or not abs(data) <= VALUE_MAX:
        raise ValueError(f"a number of {VALUE_MAX:g} at most was expected")
    return float(data)


def _index(data: Any, end: int, first: int = 0) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not first <= data < end:
        raise ValueError("an index is out of its range")
    return data
