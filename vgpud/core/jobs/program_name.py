"""The name of a job that was submitted without one: its script's, module's or program's. Pure.

What a job is started with is passed over: `python -u train.py`, `torchrun --nproc-per-node 2 train.py` and
`env A=1 bash train.sh` are all `train`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_VERSION = re.compile(r"[\d.]+$")
_SUFFIX = re.compile(r"(?<=.)\.(py|pyc|pyz|sh|bash|zsh|pl|rb|js|r|R|jl)$")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
#: programs within programs: env nohup env nohup python ...
_DEPTH_MAX = 8


@dataclass(frozen=True)
class _Starter:
    """A program that runs another one, or a script, which is its first word that is no option.

    With an option of `code` there is no script.
    """

    letters: str = ""  # options of one letter with a value
    code: str = ""  # those of them whose value is a program's text
    module: str = ""  # the one whose value is a module's name
    flags: frozenset[str] | None = None  # long options without a value, if all others have one; None: none has one
    long: frozenset[str] = frozenset()  # long options with a value, where most have none
    runs_programs: bool = False  # what follows is a command line, not a script


_SHELL = _Starter("oOc", code="c", long=frozenset(["rcfile", "init-file"]))
_PYTHON = _Starter("cmWX", code="c", module="m", long=frozenset(["check-hash-based-pycs"]))
_TORCHRUN_FLAGS = frozenset(["standalone", "module", "no-python", "run-path", "virtual-local-rank"])
_TORCHRUN = _Starter("rt", flags=_TORCHRUN_FLAGS)
_STARTERS = {
    **dict.fromkeys(("python", "pypy", "ipython"), _PYTHON),
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), _SHELL),
    "perl": _Starter("eE", code="eE"),
    "ruby": _Starter("eI", code="e"),
    "node": _Starter("epr", code="ep"),
    "julia": _Starter("eEJptL", code="eE"),
    "Rscript": _Starter("e", code="e"),
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "env": _Starter("uCS", runs_programs=True),
    "nohup": _Starter(runs_programs=True),
    "nice": _Starter("n", runs_programs=True),
    "stdbuf": _Starter("ioe", runs_programs=True),
    "exec": _Starter("a", runs_programs=True),
}


def program_name(command: Sequence[str]) -> str:
    """`python train.py` -> train; `bash train.sh` -> train; `python -m pkg.mod` -> pkg.mod; `./train` -> train.

    A starter without a script (`python`, `sh -c TEXT`) has its own name. "" for a command without words.
    """
    words = list(command)
    for _ in range(_DEPTH_MAX):
        further = _find_program(words)
        if not further or not _base(further[0]):
            break
        words = further
    return _base(words[0]) if words else ""


def _base(word: str) -> str:
    """The last part of a path, without a script's suffix; "" of a directory such as "."."""
    last = word.rstrip("/").rpartition("/")[2]
    return _SUFFIX.sub("", last) if last.strip(".-") else ""


def _find_program(words: Sequence[str]) -> list[str]:
    """The words from the script, module or program on that words[0] runs; [] if it runs none."""
    starter = _STARTERS.get(_VERSION.sub("", words[0].rpartition("/")[2])) if words else None
    if starter is None:
        return []
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == "--":
            return rest
        if starter.runs_programs and _VARIABLE.match(word):
            continue
        if word.startswith("--"):
            name, equals, _ = word[2:].replace("_", "-").partition("=")
            if not equals and _has_value(starter, name):
                rest = rest[1:]
        elif word[:1] in ("-", "+") and len(word) > 1:
            letter, value = _find_letter(starter, word[1:])
            if not letter:
                continue
            if letter in starter.code:
                return []
            if not value and rest:
                value = rest.pop(0)
            if letter == starter.module:
                return [value, *rest]
        else:
            return [word, *rest]
    return []


def _has_value(starter: _Starter, long_name: str) -> bool:
    return long_name in starter.long if starter.flags is None else long_name not in starter.flags


def _find_letter(starter: _Starter, letters: str) -> tuple[str, str]:
    """The first of a word's letters that has a value, and that value as far as it is in the word; "" if none has."""
    for number, letter in enumerate(letters):
        if letter in starter.letters:
            return letter, letters[number + 1 :]
    return "", ""
