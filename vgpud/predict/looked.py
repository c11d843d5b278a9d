"""A model's prediction on a device, as one value: for the command line and the Python client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vgpud.predict import analytic, entry, hardware
from vgpud.predict import model as models
from vgpud.predict.entry import Asked, Read
from vgpud.predict.features import Features
from vgpud.predict.hardware import Gpu
from vgpud.predict.memory import Estimate
from vgpud.predict.model import Interval, Predicted
from vgpud.predict.ops import list_ingredients


@dataclass(frozen=True)
class Looked:
    """The prediction for a model on a device. Memory: of the process with its context, from the graph.

    dry_memory: low, value, high by a dry run of the model, where there was one; else why_no_run may say why.
    """

    query: Asked
    gpu: Gpu
    read: Read
    features: Features
    memory: Estimate
    prediction: Predicted
    dry_memory: tuple[float, float, float] | None = None
    why_no_run: str = ""

    @property
    def in_range(self) -> bool:
        """Whether the predictor covers the model: it was trained on such models, and every operation is known."""
        return self.prediction.in_range and not self.read.counts.unknown

    @property
    def description(self) -> str:
        """The model and its training, as text."""
        counts = self.read.counts
        parameters = self.features["parameters"]
        scale, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if parameters >= s), (1, ""))
        size = f"{counts.family} of {parameters / scale:.3g}{unit} parameters"
        return f"{self.query.model}: {size}, batch {counts.batch}, {self.query.optimizer}, {self.query.precision}"

    @property
    def why(self) -> str:
        """A sentence about the range; empty if the model is in range."""
        if self.read.counts.unknown:
            return f"out of range: the cost of {', '.join(self.read.counts.unknown)} is not known"
        return self.prediction.why

    @property
    def utilisation(self) -> Interval | None:
        """Predicted if the model is in range, otherwise by roofline; None: an operation's cost is not known."""
        if self.in_range:
            return self.prediction.utilisation
        return None if self.read.counts.unknown else analytic.predict_utilisation(self.features)

    @property
    def memory_by(self) -> str:
        """Where memory_range() is from: dry_run, predictor or graph."""
        return "dry_run" if self.dry_memory else "predictor" if self.in_range else "graph"

    def memory_range(self) -> tuple[float, float, float]:
        """Low, value, high: by a dry run if there was one; predicted if the model is in range; else from the graph."""
        if self.dry_memory:
            return self.dry_memory
        found = self.prediction.memory_bytes if self.in_range else self.memory
        return found.low, found.value, found.high


def look(
    model: str,
    gpu: str,
    *,
    batch: int | None = None,
    optimizer: str = "adam",
    precision: str = "fp32",
    dims: Mapping[str, int] | None = None,
    predictor: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Looked:
    """Reads the model and predicts it on the device of this name. environment: of the process that reads it. Raises
    VgpudError: one line."""
    device = hardware.find_gpu(gpu)
    chosen = models.load(predictor)
    asked = entry.Asked(model, batch, optimizer, precision, dims or {}, environment=environment)
    found = entry.read(asked)
    known = entry.compute_features(found, asked, device)
    prediction = chosen.predict(known, list_ingredients(found.counts.ops))
    return Looked(asked, device, found, known, entry.memory_bytes(found, device), prediction)
