"""Run by an interpreter with PyTorch, in a slice of a simulated device or on one of that size: takes all of its memory,
and then more. Prints JSON: what was free, and what PyTorch says of one byte more.
"""

from __future__ import annotations

import json

import torch

GRANULE = 2 << 20


def refuse(size: int) -> str:
    """What PyTorch says when there is no memory for so many bytes."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"there was memory for {size} bytes")


def main() -> None:
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info()
    assert free % GRANULE == 0, free
    messages = [refuse(free + 1)]
    one = torch.empty(free, dtype=torch.uint8, device="cuda")
    assert torch.cuda.mem_get_info()[0] == 0
    messages.append(refuse(1))
    del one
    torch.cuda.empty_cache()
    taken = [torch.empty(GRANULE * 8, dtype=torch.uint8, device="cuda") for _ in range(free // GRANULE // 8)]
    rest = torch.cuda.mem_get_info()[0]
    taken.pop()  # its block is kept, and found again: nothing is asked of the driver
    taken.append(torch.empty(GRANULE * 8, dtype=torch.uint8, device="cuda"))
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    del taken[-2:]  # each is too small for what is asked now: PyTorch gives them back, and tries again
    torch.empty(GRANULE * 16, dtype=torch.uint8, device="cuda")
    retries = torch.cuda.memory_stats()["num_alloc_retries"] - before
    print(json.dumps({"free": free, "total": total, "rest": rest, "retries": retries, "messages": messages}))


if __name__ == "__main__":
    main()
