"""JAX: the part of the device that it takes at once is a part of the slice; a jitted step."""

from __future__ import annotations

import os

from common import MIB, done, load, missing

FRACTION = 0.6


def main() -> None:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(FRACTION)
    jax = load("jax")
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as error:
        missing(f"JAX finds no CUDA device: {str(error).splitlines()[0]}")
    jnp = jax.numpy

    @jax.jit
    def step(x):
        return jnp.tanh(x @ x.T).sum(axis=0)

    x = jnp.linspace(-1, 1, 512 * 512, dtype=jnp.float32).reshape(512, 512)
    sums = [float(step(x * n).sum()) for n in (1, 2)]
    limit = int(device.memory_stats()["bytes_limit"])
    # JAX says only what it may take; it rounds it to whole MiB
    done({"sums": sums}, round(limit / FRACTION / MIB) * MIB)


if __name__ == "__main__":
    main()
