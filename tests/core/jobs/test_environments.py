"""The site's list of environments: what is read of it, and what is refused as a whole."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.jobs.container_parts import parse_parts
from vgpud.core.jobs.environments import Audience, Catalog, CatalogError, Environment, parse_catalog
from vgpud.core.model import Asker

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = """
[environment.pytorch]
description = "PyTorch 2.13"
image = "registry.example/pytorch:2.13"
command = ["python", "train.py"]
members = ["ann", "@ml", "uid:7", "gone"]
volumes = ["/sets:/data:ro"]
ports = ["20000:8080"]
registry = "site"
gpus = 0.5
mem = "20G"
cpus = 2.5
ram = "16G"
time_limit = "2h30m"
queue = "team"
env = { HF_HOME = "/data/hf" }

[environment.shell]
command = ["bash", "-l"]

[registry.site]
auth_file = "/etc/vgpud/auth.json"
members = ["@ml"]
"""
MEMBERS = {"ann": "uid:1000", "@ml": "gid:50", "uid:7": "uid:7"}


def read(text: str) -> Catalog:
    return parse_catalog(tomllib.loads(text), lambda word: MEMBERS.get(word, ""))


def test_all_keys() -> None:
    catalog = read(TEXT)
    assert list(catalog.environments) == ["pytorch", "shell"] and catalog.unknown == ("gone",)
    assert catalog.environments["pytorch"] == Environment(
        name="pytorch",
        description="PyTorch 2.13",
        audience=Audience(("ann", "@ml", "uid:7", "gone"), frozenset({"uid:1000", "gid:50", "uid:7"})),
        image="registry.example/pytorch:2.13",
        command=("python", "train.py"),
        variables=(("HF_HOME", "/data/hf"),),
        parts=parse_parts(["/sets:/data:ro"], ["20000:8080"], "site"),
        gpus_milli=500,
        mem_bytes=20 << 30,
        cpu_milli=2500,
        ram_bytes=16 << 30,
        time_limit_s=9000,
        queue="team",
    )
    assert catalog.registries["site"].auth_file == "/etc/vgpud/auth.json"


def test_who_may() -> None:
    catalog = read(TEXT)
    closed, open_to_all = (catalog.environments[name].audience for name in ("pytorch", "shell"))
    for asker in (Asker(1000), Asker(5, (9, 50)), Asker(7), Asker(5, admin=True)):
        assert closed.has(asker)
    assert not closed.has(Asker(5, (1000, 7))) and open_to_all.has(Asker(5))


def test_members_that_are_gone_open_it_to_no_other() -> None:
    """A list of removed users is not the same as none."""
    catalog = read('[environment.a]\ncommand = ["true"]\nmembers = ["gone"]\n')
    assert not catalog.environments["a"].audience.has(Asker(5, (5,)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "the file has no key 'x': its keys are environment, registry"),
        ("environment = 3", "environment is not a table of tables: write [environment.NAME]"),
        ("[environment]\na = 3", "environment is not a table of tables"),
        ('[environment."a b"]\nimage = "x"', "environment 'a b': a name has up to 64 letters"),
        ("[environment.a]", "environment.a has neither an image nor a command"),
        ('[environment.a]\nimage = "-x"', "environment.a: '-x' is not the name of an image"),
        ("[environment.a]\nimage = 3", "environment.a: image = '3' is not one line"),
        ('[environment.a]\nimages = "x"', "environment.a has no key 'images'"),
        ('[environment.a]\nimage = "x"\ngpus = "much"', "environment.a: gpus: 'much' is not a number of GPUs"),
        ('[environment.a]\nimage = "x"\ngpus = true', "environment.a: gpus = True is neither a number nor a string"),
        ('[environment.a]\nimage = "x"\ntime_limit = "5x"', "environment.a: time_limit: '5x' is not a time"),
        ('[environment.a]\nimage = "x"\ntime_limit = "0h"', "environment.a: time_limit: '0h' is not a time"),
        ('[environment.a]\nimage = "x"\ncpus = -1', "environment.a: cpus: '-1' is not a number of processors"),
        (
            '[environment.a]\nimage = "x"\nvolumes = ["/a/../b:/c"]',
            "environment.a: volume '/a/../b:/c': '/a/../b' has a",
        ),
        ('[environment.a]\nimage = "x"\nvolumes = "/a:/b"', "environment.a: volumes = /a:/b is not a list"),
        ('[environment.a]\ncommand = ["x"]\nports = ["80"]', "environment.a: volumes, ports and a registry are for a"),
        ('[environment.a]\nimage = "x"\nregistry = "r"', "environment.a: there is no registry 'r'"),
        ('[environment.a]\nimage = "x"\nregistry = "/x"', "environment.a: registry = '/x' is a path"),
        ('[environment.a]\nimage = "x"\nenv = { "A B" = "1" }', "environment.a: env.A B is not a variable"),
        ('[environment.a]\nimage = "x"\nenv = { A = 1 }', "environment.a: env.A is not a variable"),
        ('[registry.a]\nauth_file = "x"', "registry.a: auth_file = 'x' is not an absolute path"),
        ("[registry.a]", "registry.a: auth_file = '' is not an absolute path"),
    ],
)
def test_damaged_lists(text: str, why: str) -> None:
    with pytest.raises(CatalogError) as refused:
        read(text)
    assert str(refused.value).startswith(why)


def test_no_more_than_a_bound() -> None:
    with pytest.raises(CatalogError, match=r"there are 201 of \[environment.NAME\]: at most 200"):
        read("".join(f'[environment.e{n}]\nimage = "x"\n' for n in range(201)))


_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["description", "image", "members", "gpus", "cpus", "env", "volumes"]), _values))
def test_any_table_is_read_or_refused(table: dict[str, Any]) -> None:
    with contextlib.suppress(CatalogError):
        assert list(parse_catalog({"environment": {"a": table}}, lambda word: "").environments) == ["a"]
