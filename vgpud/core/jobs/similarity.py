"""Similarity classes of a job, narrowest first: durations are learnt by them (core/estimates.py), and pairs of jobs
that slow each other down are remembered by one of them (core/colocate). Pure.

A class name is a word that says what its jobs have in common, and a digest of that: short whatever the command is, and
it reveals nothing about the jobs of other users. Tsafrir, Etsion and Feitelson ("Backfilling Using System-Generated
Predictions Rather than User Runtime Estimates", TPDS 2007): a user's own last jobs predict better than users'
estimates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

from vgpud.core.jobs.model import JobSpec

#: words of class names, narrowest first, and what the jobs of such a class have in common, for messages
WORDS = {
    "exact": "the same command and size",
    "same": "the same command, whatever its numbers, and size",
    "program": "the same name, program and size",
    "name": "the same name",
    "user": "the same user and size",
    "size": "the same size",
}
#: the class for sharing a device: a seed or a learning rate makes no difference there
_SHARING = "same"
_DIGEST_BYTES = 8
_SCRIPT = re.compile(r"\.(py|pyc|sh|bash|zsh|pl|r|R|jl|js|rb|lua|m|ipynb)$")
#: a number at the end of a name, with separators around it
_NUMBERED = re.compile(r"[\W_]*\d[\d\W_]*$")
#: numbers, and what differs between runs as well: digests, identifiers
_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+(?:[.,:_-]\d+)*(?:e[+-]?\d+)?", re.IGNORECASE)
_VERSION = re.compile(r"[\d.]+$")


def classes(name: str, image: str, command: Sequence[str], uid: int, spec: JobSpec) -> tuple[str, ...]:
    """Names of the similarity classes of a job, as it was submitted, narrowest first."""
    user, size, plain = str(uid), _size(spec), _NUMBERED.sub("", name)
    image = _without_tag(image)
    numberless = tuple(_NUMBER.sub("#", word) for word in command)
    common = {
        "exact": (user, plain, image, *command, size),
        "same": (user, plain, image, *numberless, size),
        "program": (user, plain, image, *_program(command), size),
        "name": (user, plain),
    }
    narrow = (f"{word}-{_digest(parts)}" for word, parts in common.items())
    return (*narrow, *_broad(user, size))


def broad_classes(uid: int, gpus_milli: int, members: int) -> tuple[str, ...]:
    """Of these the two that need neither name nor program, "user" and "size", of a job that is not elastic."""
    return _broad(str(uid), _plain_size(gpus_milli, members))


def _broad(user: str, size: str) -> tuple[str, ...]:
    return f"user-{_digest((user, size))}", f"size-{_digest((size,))}"


def sharing(names: Sequence[str]) -> str:
    """Of the names of a job's classes the one for Ask.kind."""
    return next((name for name in names if word_of(name) == _SHARING), "")


def word_of(class_name: str) -> str:
    """The word of a class name, a key of WORDS."""
    return class_name.partition("-")[0]


def _size(spec: JobSpec) -> str:
    """GPUs and members; of an elastic job its bounds, since its size changes."""
    elastic, gpus_milli = spec.elastic, spec.ask.spec.gpus_milli
    if elastic is None:
        return _plain_size(gpus_milli, spec.members)
    gpus = f"{elastic.least_milli}..{elastic.most_milli}" if elastic.most_milli else str(gpus_milli)
    members = f"{elastic.least_members}-{elastic.most_members}" if elastic.most_members else str(spec.members)
    return f"{gpus}x{members}"


def _plain_size(gpus_milli: int, members: int) -> str:
    return f"{gpus_milli}x{members}"


def _without_tag(image: str) -> str:
    """registry:5000/team/train:2@sha256:... -> registry:5000/team/train."""
    path, slash, last = image.partition("@")[0].rpartition("/")
    return path + slash + last.partition(":")[0]


def _program(command: Sequence[str]) -> tuple[str, ...]:
    """The program, and its script, module or shell line if it has one, however they are called."""
    words = [_VERSION.sub("", word.rpartition("/")[2]) for word in command[:1]]
    for before, word in pairwise(command):
        if before in ("-m", "-c") or _SCRIPT.search(word):
            words.append(_NUMBER.sub("#", word.rpartition("/")[2] if before != "-c" else word))
            break
    return tuple(words)


def _digest(parts: Sequence[str]) -> str:
    """Of the parts one by one: ("a b",) is not ("a", "b")."""
    text = "\0".join(parts).encode(errors="backslashreplace")
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
