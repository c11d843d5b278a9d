"""A training step of PyTorch captured once and replayed as a CUDA graph; on the CPU the same steps, not captured."""

from __future__ import annotations

from common import batch, done, load_torch, network, torch_total, train

STEPS = 6


def main() -> None:
    torch, target = load_torch()
    model = network(torch, target)
    if target == "cpu":
        done({"losses": train(torch, model, target, STEPS)}, 0)
        return
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, labels = batch(torch, target, 0)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for index in range(STEPS):
        fresh_inputs, fresh_labels = batch(torch, target, index)
        inputs.copy_(fresh_inputs)
        labels.copy_(fresh_labels)
        graph.replay()
        losses.append(float(loss))
    done({"losses": losses}, torch_total(torch, target))


if __name__ == "__main__":
    main()
