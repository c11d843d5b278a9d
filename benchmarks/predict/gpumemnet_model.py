"""Makes the model that is shipped, from GPUMemNet: `python -m benchmarks.predict.gpumemnet_model [FILE]`.

The same rows and version of scikit-learn make the same model, but for its date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.predict import gpumemnet_data
from vgpud.predict import model, train_file

WHAT = (
    "3,000 training runs of multilayer perceptrons on one NVIDIA A100 (layers, parameters, batch; most memory by "
    "nvidia-smi, mean utilisation and SM activity by DCGM)"
)
PATH = Path(model.__file__).with_name(model.SHIPPED)


def main() -> int:
    """Writes the file."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    source = json.loads((gpumemnet_data.CSV.parent / "source.json").read_text())
    measured = gpumemnet_data.rows()
    rows = [row for row in measured if gpumemnet_data.ran(row)]
    card = {
        "what": WHAT,
        "data": [{"file": gpumemnet_data.CSV.name, "sha256": source["sha256"][gpumemnet_data.CSV.name]}],
        "source": f"{source['source']} at {source['commit']}",
        "licence": source["licence"],
        "attribution": "GPUMemNet: E. Yousefzadeh-Asl-Miandoab, R. Karimzadeh, D. Yorulmaz, B. Ibragimov, P. Tözün, "
        "EuroMLSys 2026, doi 10.1145/3805621.3807621",
        "left_out": f"{len(measured) - len(rows)} runs that ended at once (one output: the loss refused the labels)",
        "not_for": "convolutions, attention, recurrence, dropout, activations but ReLU, other devices (wider "
        "intervals), input pipelines that wait",
    }
    made = train_file.train_model(rows, card, lambda text: print(text, file=sys.stderr))
    train_file.write(path, made.document)
    print(f"{path}: {path.stat().st_size:,} bytes; {dict(made.errors)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
