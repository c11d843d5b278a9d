"""One of the two ranks of test_nccl.py, on two simulated devices: collectives with real values, then training.
`killed`: rank 1 ends in the middle of it."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS, SHARDED_STEPS = 100, 20
RANK = int(os.environ["LOCAL_RANK"])


def make_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()


def train(model: torch.nn.Module, steps: int, last_step: int = -1) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
    torch.cuda.synchronize()


def exchange() -> None:
    """Values that the host has written: kernels compute none."""
    values = torch.arange(1000.0).add(1000 * RANK).cuda()
    dist.all_reduce(values)
    assert values.cpu().tolist() == [2.0 * i + 1000 for i in range(1000)]
    halves = torch.full((1000,), RANK + 1.0, dtype=torch.bfloat16).cuda()
    dist.all_reduce(halves, op=dist.ReduceOp.AVG)
    assert halves.cpu().unique().tolist() == [1.5]
    flag = torch.tensor([RANK]).cuda()
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    assert flag.item() == 1
    rows = torch.empty(8, device="cuda")
    dist.reduce_scatter_tensor(rows, torch.arange(16.0).cuda())
    assert rows.cpu().tolist() == [2.0 * (i + 8 * RANK) for i in range(8)]
    gathered = torch.empty(16, device="cuda")
    dist.all_gather_into_tensor(gathered, rows)
    assert gathered.cpu().tolist() == [2.0 * i for i in range(16)]
    other = torch.empty(16, device="cuda")
    works = [dist.P2POp(dist.isend, torch.full((16,), float(RANK)).cuda(), 1 - RANK)]
    works.append(dist.P2POp(dist.irecv, other, 1 - RANK))
    for work in dist.batch_isend_irecv(works):
        work.wait()
    assert other.cpu().tolist() == [1.0 - RANK] * 16
    part = dist.new_group([RANK]) if RANK == 0 else dist.new_group([0])
    if RANK == 0:
        dist.all_reduce(other, group=part)
    dist.barrier()


def main() -> None:
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
    exchange()
    last_step = STEPS // 2 if "killed" in sys.argv and RANK == 1 else -1
    train(DistributedDataParallel(make_model(), device_ids=[RANK]), STEPS, last_step)
    model = make_model()
    fully_shard(model)
    train(model, SHARDED_STEPS)
    dist.destroy_process_group()
    print(f"rank {RANK} is done", flush=True)


main()
