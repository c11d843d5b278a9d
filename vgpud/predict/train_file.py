"""A model file from measured jobs: the checks, the training and the data card."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.predict import model, ranges, train
from vgpud.predict.boosting import require, short
from vgpud.predict.dataset import DataError, Row, lines
from vgpud.predict.features import FEATURES

if TYPE_CHECKING:
    from vgpud.predict.boosting import Numbers

SEED = 1
#: fewer configurations make folds that are empty
CONFIGURATIONS_MIN = 25


@dataclass(frozen=True)
class Made:
    """A model file's contents, and how it predicts rows that it has not seen: target -> (rows, error)."""

    document: Mapping[str, Any]
    errors: Mapping[str, tuple[int, float]]


def train_model(rows: Sequence[Row], card: Mapping[str, Any], tell: Callable[[str], None] = lambda _: None) -> Made:
    """A model of these rows. Raises DataError, one line, where they are too few or have nothing measured."""
    require()
    names = varying(rows)
    targets: dict[str, Any] = {}
    errors: dict[str, tuple[int, float]] = {}
    for target, must in model.TARGETS.items():
        known = [row for row in rows if getattr(row, target) is not None]
        shortage = _row_shortage(known, target)
        if shortage and must:
            raise DataError(shortage)
        tell(f"{target}: {len(known)} rows" if not shortage else f"{shortage}; it is left out")
        if shortage:
            continue
        targets[target], errors[target] = _target(known, target, names)
    whole = {
        "format": model.FORMAT,
        "card": {
            **card,
            "made": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "rows": len(rows),
            "rows_sha256": hashlib.sha256(lines(list(rows)).encode()).hexdigest(),
            "architectures": dict(sorted(Counter(row.architecture for row in rows).items())),
            "coverage_percent": train.COVERAGE,
            "errors": {name: {"rows": count, error_name(name): short(e)} for name, (count, e) in errors.items()},
        },
        "trained": ranges.as_json(compute_ranges(rows)),
        "features": list(names),
        "targets": targets,
    }
    return Made(whole, errors)


def error_name(target: str) -> str:
    """The measure in which the error of a target is reported."""
    return "mape_percent" if target == "memory_bytes" else "rmsle"


def _row_shortage(rows: Sequence[Row], target: str) -> str:
    """Why these are too few to learn a target from; "" when they are enough."""
    if len(rows) < train.ROWS_MIN:
        return f"{len(rows)} rows with {target}: at least {train.ROWS_MIN} are needed to learn from"
    configuration_count = len({row.fold(1 << 60, 0) for row in rows})
    if configuration_count < CONFIGURATIONS_MIN:
        text = f"rows with {target} are of {configuration_count} configurations:"
        return f"{text} measure at least {CONFIGURATIONS_MIN} different ones"
    return ""


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """Features that are not the same in all rows."""
    return tuple(name for name in FEATURES if len({row.features[name] for row in rows}) > 1)


def compute_ranges(rows: Sequence[Row]) -> ranges.Trained:
    """The ranges in which a model of these rows is valid."""
    seen = {name: [row.features[name] for row in rows] for name in FEATURES}
    return ranges.Trained(
        families=tuple(sorted({row.family for row in rows})),
        devices=tuple(sorted({row.device for row in rows})),
        ranges={name: (short(min(values)), short(max(values))) for name, values in seen.items()},
        ingredients=_join_ingredients(rows),
    )


def _join_ingredients(rows: Sequence[Row]) -> tuple[str, ...]:
    """Of all rows; () where one does not say, as that could be any."""
    if not all(row.ingredients for row in rows):
        return ()
    return tuple(sorted({name for row in rows for name in row.ingredients}))


def _target(rows: Sequence[Row], target: str, names: Sequence[str]) -> tuple[dict[str, Any], tuple[int, float]]:
    kind, table = train.TARGET_KINDS[target], train.table(rows, target, names)
    inner = train.inner_folds(rows, SEED)
    unseen = train.cross_validate(table, train.folds(rows, train.FOLDS, SEED), inner, SEED)
    chosen = train.tune_setting(table, inner, SEED, train.list_groups(rows))
    learnt = train.learn(table, chosen.setting, SEED)
    document = {
        "offset": kind.offset,
        "scale": kind.scale,
        "start": short(learnt.booster.start),
        "estimate": kind.estimate,
        "base": short(learnt.base),
        "most": kind.maximum,
        "spread": [list(part) for part in chosen.spread],
        "trees": learnt.booster.tables(),
    }
    return document, (len(rows), error(target, kind.values(unseen.logs), table.values))


def evaluate_model(rows: Sequence[Row], judge: model.Model | None = None) -> dict[str, dict[str, float]]:
    """What a model (the shipped one) says of rows: its error for each target, and how many it calls in range."""
    import numpy as np

    judge = judge or model.load()
    said = [judge.predict(row.features) for row in rows]
    found: dict[str, dict[str, float]] = {}
    for target in train.TARGET_KINDS:
        pairs = [
            (getattr(row, target), getattr(each, target).value)
            for row, each in zip(rows, said, strict=True)
            if getattr(row, target) is not None and getattr(each, target) is not None
        ]
        if not pairs:
            continue
        wanted, predicted_values = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
        found[target] = {
            "rows": len(pairs),
            "in_range": sum(each.in_range for each in said),
            "error": error(target, predicted_values, wanted),
        }
    return found


def error(target: str, predictions: Numbers, measurements: Numbers) -> float:
    """Of predictions of a target: see error_name."""
    kind = train.TARGET_KINDS[target]
    return (
        train.mape(predictions, measurements)
        if target == "memory_bytes"
        else train.rmsle(kind.logs(predictions), kind.logs(measurements))
    )


def check(path: Path) -> None:
    """Raises DataError where a model cannot be written: before minutes of training, not after."""
    if path.is_dir():
        raise DataError(f"cannot write {path}: it is a directory, name a file in it")
    if path.exists() and not path.is_file():  # /dev/null would be gone
        raise DataError(f"cannot write {path}: it is not a regular file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DataError(f"cannot write {path}: {path.parent} is not a directory that you may write to")


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Writes the file atomically. Raises DataError."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"
    model.parse(text.encode(), str(path))  # nothing is written that could not be read
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise DataError(f"cannot write {path}: {error.strerror}") from error
