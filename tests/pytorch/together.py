"""Run by an interpreter with PyTorch, on a simulated device: programs of this folder, named by the arguments, one after
the other in one process, since to import PyTorch takes longer than most of them. Before the lines of each it prints a
line of JSON with its name; after them all blocks that PyTorch keeps are given back. One that fails ends it with 1.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys

import torch


def main() -> None:
    names = sys.argv[1:]
    for name in names:
        print(json.dumps({"program": name}), flush=True)
        sys.argv = [name]
        if importlib.import_module(name).main():
            sys.exit(1)
        gc.collect()
        torch.cuda.empty_cache()


main()
