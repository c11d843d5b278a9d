"""What the client computes here, without the daemon: predictions and simulations. The parts load when they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.client.failures import make_error
from vgpud.errors import ExitCode

if TYPE_CHECKING:
    from vgpud.predict.looked import Looked
    from vgpud.simulate.results import Figures


def predict(model: str, gpu: str, options: Mapping[str, Any]) -> Looked:
    """`options`: keywords of vgpud.predict.looked.look. Raises VgpudError."""
    from vgpud.predict import looked

    return looked.look(model, gpu, **options)


def one_model(names: Sequence[str]) -> str:
    """The model's name of the daemon's devices. Raises ClientError unless it is one."""
    found = sorted(set(names))
    if len(found) != 1:
        text = f"the daemon has {', '.join(found) or 'no device'}: say for which with gpu="
        raise make_error(text, ExitCode.USAGE)
    return found[0]


def simulate(trace: Path, cluster: str, policies: Sequence[str], placement: str) -> dict[str, Figures]:
    """The figures of a trace under each policy. Raises VgpudError."""
    from vgpud.simulate import clusters, readers, results, scenario

    chosen = {policy: scenario.Scenario(policy, placement) for policy in policies}
    for one in chosen.values():
        scenario.check(one)
    jobs, nodes = readers.read(trace), clusters.parse(cluster)
    return {name: results.figures(scenario.run(jobs, nodes, one)) for name, one in chosen.items()}
