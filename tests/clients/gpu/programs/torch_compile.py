"""torch.compile: kernels that Triton makes (on the CPU: C++) give what eager PyTorch gives."""

from __future__ import annotations

from common import done, load, load_torch, torch_total


def work(torch, x, y):
    return torch.nn.functional.gelu(x @ y) * torch.sigmoid(x).sum(dim=1, keepdim=True)


def main() -> None:
    torch, target = load_torch()
    if target == "cuda":
        load("triton")
    made = torch.Generator().manual_seed(3)
    x, y = (torch.randn(256, 256, generator=made).to(target) for _ in range(2))
    compiled = torch.compile(work)
    eager, fast = work(torch, x, y), compiled(torch, x, y)
    again = compiled(torch, x + 1, y)
    result = {
        "close": bool(torch.allclose(eager, fast, rtol=1e-3, atol=1e-3)),
        "sums": [float(value.double().sum().cpu()) for value in (eager, fast, again)],
    }
    done(result, torch_total(torch, target))


if __name__ == "__main__":
    main()
