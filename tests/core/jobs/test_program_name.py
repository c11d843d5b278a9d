"""The names of jobs that were submitted without one."""

from __future__ import annotations

import shlex

import pytest

from vgpud.core.jobs.program_name import program_name


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("./train --epochs 3", "train"),
        ("/opt/bin/train.v2", "train.v2"),
        ("./train.py", "train"),
        ("python train.py", "train"),
        ("python3.11 -u -W ignore -X dev /home/ann/train.py --name python", "train"),
        ("python -uWignore train.py", "train"),
        ("python -m pkg.mod --epochs 3", "pkg.mod"),
        ("python -umpkg.mod", "pkg.mod"),
        ("python -c 'import torch'", "python"),
        ("python -uc 'import torch' train.py", "python"),
        ("python -", "python"),
        ("python . ", "python"),
        ("python app/", "app"),
        ("python", "python"),
        ("python -m", "python"),
        ("bash run.sh a b", "run"),
        ("bash -ex -o pipefail run.sh", "run"),
        ("bash env.sh python", "env"),
        ("/bin/sh -c 'make && ./train'", "sh"),
        ("bash -lc ./train", "bash"),
        ("torchrun train.py", "train"),
        ("torchrun --standalone --nproc-per-node 2 --nnodes=1 train.py --lr 1", "train"),
        ("torchrun --nproc_per_node 2 -m pkg.mod", "pkg.mod"),
        ("torchrun --module pkg.mod", "pkg.mod"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train"),
        ("env -u B A=1 nohup nice -n 10 python train.py", "train"),
        ("env A=1", "env"),
        ("Rscript --vanilla fit.R", "fit"),
        ("make all", "make"),
        (".sh", ".sh"),
    ],
)
def test_the_script_names_the_job(line: str, name: str) -> None:
    assert program_name(shlex.split(line)) == name


def test_any_words_have_a_name() -> None:
    assert program_name(()) == ""
    assert program_name(["env"] * 50) == "env"
    assert program_name([""]) == ""
    assert program_name(["python", ""]) == "python"
