"""Gradient boosting: scikit-learn's, and its trees as tables of numbers.

Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpud.errors import ExitCode, VgpudError
from vgpud.predict.dataset import Row
from vgpud.predict.model import coordinates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Points = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of boosters."""

    trees: int = 300
    depth: int = 5
    rate: float = 0.03
    leaf: int = 10  # rows in a leaf at least
    rows: float = 0.5  # part of the rows that each tree sees
    columns: float = 0.5  # part of the features that each split sees


def require() -> None:
    """Raises VgpudError, one line, where scikit-learn is not installed."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError as error:
        raise VgpudError(
            "training needs scikit-learn, which is not installed: pip install 'vgpud[predict]'", ExitCode.USAGE
        ) from error


def matrix(rows: Sequence[Row], names: Sequence[str]) -> Points:
    """Features as the trees see them."""
    import numpy as np

    return np.array([coordinates([row.features[name] for name in names]) for row in rows], dtype=np.float32)


class Booster:
    """What is grown with a setting: the prediction is its start and what the trees add."""

    def __init__(self, setting: Setting, points: Points, target_values: Numbers, seed: int) -> None:
        from sklearn.ensemble import GradientBoostingRegressor

        self.setting = setting
        self.start = float(target_values.mean())
        self.learner = GradientBoostingRegressor(
            n_estimators=setting.trees,
            max_depth=setting.depth,
            learning_rate=setting.rate,
            min_samples_leaf=setting.leaf,
            subsample=setting.rows,
            max_features=setting.columns,
            init="zero",
            random_state=seed,
        )
        self.learner.fit(points, target_values - self.start)

    def predict(self, points: Points) -> Numbers:
        predicted: Numbers = self.learner.predict(points) + self.start
        return predicted

    def tables(self) -> list[dict[str, list[Any]]]:
        """The trees as a model file has them: what they say adds up to the prediction without its start."""
        return [_table(stage[0].tree_, self.setting.rate) for stage in self.learner.estimators_]


def _table(tree: Any, rate: float) -> dict[str, list[Any]]:
    """scikit-learn grows depth first: a left child is the node after its parent."""
    leaf = [int(left) < 0 for left in tree.children_left]
    if any(
        not end and int(left) != node + 1 for node, (end, left) in enumerate(zip(leaf, tree.children_left, strict=True))
    ):
        raise VgpudError("this version of scikit-learn does not number the nodes of its trees depth first")
    values = tree.value[:, 0, 0] * rate
    return {
        "feature": [-1 if end else int(x) for end, x in zip(leaf, tree.feature, strict=True)],
        "number": [short(v if end else t) for end, v, t in zip(leaf, values, tree.threshold, strict=True)],
        "right": [0 if end else int(x) for end, x in zip(leaf, tree.children_right, strict=True)],
    }


def short(value: float) -> float:
    """A number with as many digits as a prediction is worth."""
    return float(f"{value:.7g}")
