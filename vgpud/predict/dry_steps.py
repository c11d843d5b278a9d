"""Some steps of an entry point on the device that this process sees, a simulated one: vgpu counts what they take.

Started by the command line with one JSON document as its argument. The function is the user's own code. What it prints
goes nowhere; why the steps failed goes to the file that is named.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpud.predict.graph import GraphError, label

#: the first makes the optimizer's states, the second needs its activations beside them, and from then on it repeats
STEPS = 3


def main() -> None:
    """Exit code 1: the steps failed."""
    asked = json.loads(sys.argv[-1])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    try:
        run(asked["model"], asked["batch"], asked["optimizer"], asked["precision"])
    except (Exception, SystemExit) as error:
        known = isinstance(error, GraphError)
        Path(asked["error_file"]).write_text(label(str(error) if known else f"{type(error).__name__}: {error}"))
        sys.exit(1)


def run(entry: str, batch: int, optimizer: str, precision: str) -> None:
    """As a plain training program does it: the batch is copied, the optimizer has its usual form."""
    import torch
    from torch.utils import _pytree as pytree

    from vgpud.predict import torch_trace

    answer = torch_trace.load_function(entry)(batch)
    model, args, kwargs = torch_trace.split_answer(entry, answer, batch)
    training = optimizer != "none"
    model.train(training).to("cuda")
    updates = _make_optimizer(optimizer, model) if training else None
    half = None if precision == "fp32" else getattr(torch, {"fp16": "float16", "bf16": "bfloat16"}[precision])
    for _ in range(STEPS if training else 1):
        copied = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("cuda"), (args, kwargs))
        if updates:
            updates.zero_grad()
        with torch.set_grad_enabled(training), torch.autocast("cuda", half, enabled=half is not None):
            output = model(*copied[0], **copied[1])
            loss = find_loss(output) if updates else None
        if updates and loss is not None:
            loss.backward()
            updates.step()
    torch.cuda.synchronize()


def _make_optimizer(name: str, model: Any) -> Any:
    from torch import optim

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name in ("sgd", "momentum"):
        return optim.SGD(parameters, lr=0.1, momentum=0.9 if name == "momentum" else 0)
    kinds = {"adagrad": optim.Adagrad, "rmsprop": optim.RMSprop, "adam": optim.Adam, "adamw": optim.AdamW}
    return kinds[name](parameters)


def find_loss(output: Any) -> Any:
    """What is trained: the loss that the model brings, else that of its answer as probabilities of classes."""
    import torch
    from torch.nn import functional
    from torch.utils import _pytree as pytree

    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    leaves = [own] if own is not None else pytree.tree_leaves(output)
    found = next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad), None)
    if found is None:
        raise GraphError("nothing in the model's answer can be trained")
    if found.numel() == 1:
        return found.sum()
    if found.dim() < 2:
        return found.float().mean()
    scores = found.flatten(0, -2)
    return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=found.device))


if __name__ == "__main__":
    main()
