"""Launches x.add_(1) as often as it is told, each time it is told: a line on standard input, then a line of the
processor time of one launch in ns. Run by launch.py with an interpreter that has PyTorch; knows nothing of vgpud.
"""

import sys
import time

import torch

WARM_UP = 2000


def main() -> None:
    x = torch.zeros(1024, device="cuda")
    for _ in range(WARM_UP):
        x.add_(1)
    torch.cuda.synchronize()
    print(0, flush=True)
    for line in sys.stdin:
        count = int(line)
        begin = time.thread_time_ns()
        for _ in range(count):
            x.add_(1)
        took_ns = time.thread_time_ns() - begin
        torch.cuda.synchronize()
        print(took_ns / count, flush=True)


main()
