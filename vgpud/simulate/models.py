"""Skew of a model's tensors, for placement, from the model's name in a trace.

Tiresias measures the part that the largest tensor has in all that a job sends. For training with one gradient for each
parameter that follows from the architecture: the parameters of the largest layer over all of them.
"""

from __future__ import annotations

from vgpud.simulate.interference import family

#: family -> (parameters of its largest tensor, of all of it), as the architectures are published
_PARAMETERS = {
    "alexnet": (9216 * 4096, 61_100_840),
    "vgg11": (25_088 * 4096, 132_863_336),
    "vgg16": (25_088 * 4096, 138_357_544),
    "vgg19": (25_088 * 4096, 143_667_240),
    "googlenet": (1024 * 1000, 6_624_904),
    "inception3": (2048 * 1000, 23_834_568),
    "inception4": (1536 * 1000, 42_679_816),
    "resnet50": (512 * 512 * 9, 25_557_032),
    "resnet101": (512 * 512 * 9, 44_549_160),
    "resnet152": (512 * 512 * 9, 60_192_808),
}


def skew_ppm(model: str) -> int:
    """In parts of a million; -1 = not known."""
    largest, whole = _PARAMETERS.get(family(model), (-1, 0))
    return largest * 1_000_000 // whole if whole else -1
