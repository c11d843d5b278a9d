"""DataLoader: workers that are forked while the parent has a device, pinned memory, copies that do not block."""

from __future__ import annotations

from common import done, load_torch, network, torch_total

SAMPLES = 128


def main() -> None:
    torch, target = load_torch()
    model = network(torch, target)  # the device is in use before the workers are there

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int):
            return torch.randn(64, generator=torch.Generator().manual_seed(index)), index

    pinned = target == "cuda"
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=16, num_workers=2, pin_memory=pinned, multiprocessing_context="fork"
    )
    seen, total = 0, torch.zeros(10, device=target)
    for inputs, indices in loader:
        total += model(inputs.to(target, non_blocking=True)).detach().sum(dim=0)
        seen += int(indices.sum())
    done({"seen": seen, "sums": total.cpu().tolist()}, torch_total(torch, target))


if __name__ == "__main__":
    main()
