"""What a job is like: its classes, narrowest first, by which durations are learnt (core/estimates.py) and pairs of jobs
on one device are remembered (core/colocate). Pure.

A class is a word that says what its jobs have in common and a digest of that, so it is short whatever the command is,
and tells nobody what another user runs. Tsafrir, Etsion and Feitelson ("Backfilling Using System-Generated Predictions
Rather than User Runtime Estimates", TPDS 2007): a user's own last jobs say more than what users say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

from vgpud.core.jobs.model import JobSpec

#: the words, narrowest first, and what a reader is told that the jobs of such a class have in common
WORDS = {
    "exact": "the same command and size",
    "same": "the same command, whatever its numbers, and size",
    "program": "the same name, program and size",
    "name": "the same name",
    "user": "the same user and size",
    "size": "the same size",
}
#: the class that says how a job behaves beside others on a device: its seed and learning rate do not matter for that
_SHARING = "same"
_DIGEST_BYTES = 8
_SCRIPT = re.compile(r"\.(py|pyc|sh|bash|zsh|pl|r|R|jl|js|rb|lua|m|ipynb)$")
#: a name's number, with what stands around it
_NUMBERED = re.compile(r"[\W_]*\d[\d\W_]*$")
#: numbers and what is as different from run to run: digests, identifiers
_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+(?:[.,:_-]\d+)*(?:e[+-]?\d+)?", re.IGNORECASE)
_VERSION = re.compile(r"[\d.]+$")


def kinds(name: str, image: str, command: Sequence[str], uid: int, spec: JobSpec) -> tuple[str, ...]:
    """Of a job as it was submitted."""
    user, size, plain = str(uid), _size(spec), _NUMBERED.sub("", name)
    image = _without_tag(image)
    numberless = tuple(_NUMBER.sub("#", word) for word in command)
    common = {
        "exact": (user, plain, image, *command, size),
        "same": (user, plain, image, *numberless, size),
        "program": (user, plain, image, *_program(command), size),
        "name": (user, plain),
        "user": (user, size),
        "size": (size,),
    }
    return tuple(f"{word}-{_digest(common[word])}" for word in WORDS)


def sharing(found: Sequence[str]) -> str:
    """Of a job's classes the one for Ask.kind."""
    return next((kind for kind in found if word_of(kind) == _SHARING), "")


def word_of(kind: str) -> str:
    """Which of WORDS a class is of."""
    return kind.partition("-")[0]


def _size(spec: JobSpec) -> str:
    """GPUs and members; of an elastic job its bounds, for it has something between them."""
    elastic, gpus_milli = spec.elastic, spec.ask.spec.gpus_milli
    if elastic is None:
        return f"{gpus_milli}x{spec.members}"
    gpus = f"{elastic.least_milli}..{elastic.most_milli}" if elastic.most_milli else str(gpus_milli)
    members = f"{elastic.least_members}-{elastic.most_members}" if elastic.most_members else str(spec.members)
    return f"{gpus}x{members}"


def _without_tag(image: str) -> str:
    """registry:5000/team/train:2@sha256:... -> registry:5000/team/train."""
    path, slash, last = image.partition("@")[0].rpartition("/")
    return path + slash + last.partition(":")[0]


def _program(command: Sequence[str]) -> tuple[str, ...]:
    """The program, and its script, module or line for the shell if it has one, however they are called up."""
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
