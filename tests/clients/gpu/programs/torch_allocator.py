"""PyTorch's allocator: what it reserves, gives back and refuses. Which one it is, PYTORCH_CUDA_ALLOC_CONF says."""

from __future__ import annotations

from common import MIB, done, load_torch, network, raises, torch_total, train


def main() -> None:
    torch, target = load_torch()
    result = {"losses": train(torch, network(torch, target), target, 5)}
    total = torch_total(torch, target)
    if target == "cuda":
        result["backend"] = torch.cuda.get_allocator_backend()
        blocks = [torch.full((32 * MIB,), number, dtype=torch.uint8, device=target) for number in range(8)]
        result["sums"] = [int(block.sum(dtype=torch.int64)) for block in blocks]
        result["allocated_all"] = torch.cuda.memory_allocated() >= 8 * 32 * MIB
        del blocks[::2]
        torch.cuda.empty_cache()
        larger = torch.ones(200 * MIB, dtype=torch.uint8, device=target)
        result["sum"] = int(larger.sum(dtype=torch.int64))
        over = raises(torch.OutOfMemoryError, lambda: torch.empty(total + MIB, dtype=torch.uint8, device=target))
        result["over_refused"] = over
        result["goes_on"] = int(torch.arange(1000, device=target).sum())
        del blocks, larger
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        result["reserved_less"] = torch.cuda.memory_reserved() < 200 * MIB
    done(result, total)


if __name__ == "__main__":
    main()
