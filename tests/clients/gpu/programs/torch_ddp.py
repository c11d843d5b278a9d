"""DistributedDataParallel: two processes that train together on one device (gloo: NCCL wants a device for each)."""

from __future__ import annotations

import sys
import tempfile

from common import done, load_torch, network, torch_total, train

RANKS = 2


def rank_main(rank: int, target: str, meeting: str, losses, totals) -> None:
    sys.argv[1:] = [target]
    torch, target = load_torch()
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model = torch.nn.parallel.DistributedDataParallel(network(torch, target))
    losses[rank] = train(torch, model, target, 4, first=100 * rank)  # other data in each: the gradients are shared
    weights = [float(value.detach().double().sum().cpu()) for value in model.parameters()]
    losses[RANKS + rank] = weights
    totals[rank] = torch_total(torch, target)
    torch.distributed.destroy_process_group()


def main() -> None:
    torch, target = load_torch()
    spawn = torch.multiprocessing
    with tempfile.TemporaryDirectory() as folder, spawn.get_context("spawn").Manager() as shared:
        losses, totals = shared.dict(), shared.dict()
        spawn.spawn(rank_main, (target, f"{folder}/meet", losses, totals), nprocs=RANKS)
        same = losses[RANKS] == losses[RANKS + 1]
        assert totals[0] == totals[1], "the processes see devices of different sizes"
        done({"losses": [losses[rank] for rank in range(RANKS)], "weights_same": same}, totals[0])


if __name__ == "__main__":
    main()
