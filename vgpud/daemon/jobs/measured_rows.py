"""The site's own measured jobs: a row of each job that ended and had been predicted, for `vgpu predict train`.

The file grows to a limit and is then rotated, one former file is kept. It writes to disk: call it off the loop.
"""

from __future__ import annotations

import logging
from pathlib import Path

from vgpud.core.jobs.facts import Predicted
from vgpud.host.private_files import FILE_MODE
from vgpud.predict import dataset
from vgpud.predict.features import FEATURES, Features

log = logging.getLogger("vgpud")

FILE_NAME = "measured.csv"
FILE_BYTES = 16 << 20
#: what a submitter does not say of a model's family
FAMILY = "other"


def row_of(
    prediction: Predicted, device: str, utilisation: float | None, memory_bytes: int, step_ns: int
) -> dataset.Row | None:
    """None: its features are not all there, or nothing was measured."""
    known = dict(prediction.features)
    if not FEATURES.keys() <= known.keys() or (utilisation is None and not memory_bytes):
        return None
    try:
        features = Features({name: known[name] for name in FEATURES})
    except ValueError:  # a submitter's numbers, which are useless for training
        return None
    row = dataset.Row(
        device=device,
        family=FAMILY,
        architecture=prediction.model or "unnamed",
        features=features,
        utilisation=utilisation,
        memory_bytes=float(memory_bytes) or None,
        step_ns=float(step_ns) if 1 <= step_ns <= dataset.MEASURED["step_ns"] else None,  # the program says that
    )
    try:
        dataset.parse(dataset.lines([row]), FILE_NAME)  # one row that cannot be read would cost all that are there
    except dataset.DataError as error:
        log.warning("a measured job is not kept: %s", error)
        return None
    return row


def append(directory: Path, row: dataset.Row) -> None:
    """A failure is only logged: no job waits for it."""
    path = directory / FILE_NAME
    try:
        if path.exists() and path.stat().st_size > FILE_BYTES:
            path.replace(path.with_suffix(".1.csv"))
        try:
            dataset.append(path, [row], FILE_MODE)
        except dataset.OtherColumns:  # its rows are kept, too
            path.replace(path.with_suffix(".1.csv"))
            dataset.append(path, [row], FILE_MODE)
    except (OSError, dataset.DataError) as error:
        log.warning("a measured job is not kept: %s", error)
