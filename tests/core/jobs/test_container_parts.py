"""Volumes, ports and credentials as users write them, and what a site allows of them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.jobs.container_parts import (
    ContainerParts,
    PartError,
    Port,
    Volume,
    is_below,
    leave_out,
    parse_allowance,
    parse_parts,
    parse_port,
    parse_registry,
    parse_volume,
)

SITE = parse_allowance(["/data:ro", "/home", "/scratch/jobs"], ["20000-20099", "30000"])


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/data:/data", Volume("/data", "/data")),
        ("/data/./x//y/:/in:ro", Volume("/data/x/y", "/in", read_only=True)),
        ("/data:/in/put:rw", Volume("/data", "/in/put")),
    ],
)
def test_volumes(text: str, volume: Volume) -> None:
    assert parse_volume(text) == volume
    assert parse_volume(str(volume)) == volume


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/data", "is not HOST:CONTAINER"),
        ("/data:/in:rx", "is not HOST:CONTAINER"),
        ("/data:/in:ro:z", "is not HOST:CONTAINER"),
        ("data:/in", "'data' is not absolute"),
        ("/data:in", "'in' is not absolute"),
        ("/data/../etc:/in", "has a `..`"),
        ("/data:/in/..", "has a `..`"),
        ("/da,ta:/in", "no colons, commas"),
        ('/da"ta:/in', "no colons, commas"),
        ("/da\nta:/in", "no colons, commas"),
        ("/data:/", "is the container's own"),
        ("/data:/proc", "is the container's own"),
        ("/data:/sys/fs/cgroup", "is the container's own"),
        ("/" + "x" * 5000 + ":/in", "no colons, commas"),
    ],
)
def test_what_is_no_volume(text: str, why: str) -> None:
    with pytest.raises(PartError) as refused:
        parse_volume(text)
    assert why in str(refused.value) and str(refused.value).isprintable()


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_a_volume_that_says_where_it_is_or_refused(host: str, container: str) -> None:
    with contextlib.suppress(PartError):
        found = parse_volume(f"{host}:{container}")
        for path in (found.host, found.container):
            assert path.startswith("/") and ".." not in path.split("/") and "//" not in path


def test_ports() -> None:
    assert parse_port("8080") == Port(8080, 8080) and parse_port("20001:80") == Port(20_001, 80)
    for text in ("", "0", "70000", "a", "80:", "1:2:3", "-1", "٣"):
        with pytest.raises(PartError, match="is not a port"):
            parse_port(text)


def test_registries() -> None:
    assert parse_registry("site.1") == "site.1" and parse_registry("/home/ann/config.json") == "/home/ann/config.json"
    for text in ("-x", "a b", "x" * 65, "/a\nb", "../x"):
        with pytest.raises(PartError):
            parse_registry(text)


def test_places_are_each_for_one() -> None:
    with pytest.raises(PartError, match="two volumes at /in"):
        parse_parts(["/data:/in", "/home:/in:ro"], [])
    with pytest.raises(PartError, match="two ports at 20000"):
        parse_parts([], ["20000:80", "20000:81"])
    with pytest.raises(PartError, match="17 volumes and 0 ports: at most"):
        parse_parts([f"/data:/in{n}" for n in range(17)], [])


@pytest.mark.parametrize(
    ("volumes", "ports", "why"),
    [
        (["/data/x:/in:ro", "/home/ann:/h", "/scratch/jobs:/s", "/home:/x:ro"], ["20000", "20099:80", "30000:1"], ""),
        (["/etc:/in:ro"], [], "/etc is not below a directory that jobs may have: the site allows /data:ro, /home"),
        (["/database:/in:ro"], [], "/database is not below"),
        (["/scratch:/in"], [], "/scratch is not below"),
        (["/data/x:/in"], [], "/data/x is for reading only here: add :ro"),
        ([], ["19999"], "19999 of this node is not for jobs: the site allows 20000-20099, 30000-30000"),
        ([], ["80"], "80 of this node is not for jobs"),
    ],
)
def test_what_the_site_allows(volumes: list[str], ports: list[str], why: str) -> None:
    parts = parse_parts(volumes, ports)
    if not why:
        SITE.check(parts)
        return
    with pytest.raises(PartError) as refused:
        SITE.check(parts)
    assert why in str(refused.value)


def test_a_site_that_allows_nothing_says_so() -> None:
    none = parse_allowance([], [])
    for parts, key in ((parse_parts(["/data:/in"], []), "volumes"), (parse_parts([], ["20000"]), "ports")):
        with pytest.raises(PartError, match=rf"the site allows none \({key} in vgpud.toml\)"):
            none.check(parts)
    for network in ("none", "host", "container:db", "ns:/run/netns/x"):
        with pytest.raises(PartError, match=f"have the network {network!r}"):
            parse_allowance([], ["20000"], network).check(parse_parts([], ["20000"]))
    for network in ("", "bridge", "of-jobs"):
        parse_allowance([], ["20000"], network).check(parse_parts([], ["20000"]))


def test_what_holds_once_links_are_followed() -> None:
    """A directory for reading only is none where one may write."""
    assert SITE.roots_for(parse_volume("/data/x:/in:ro")) == ("/data", "/home", "/scratch/jobs")
    assert SITE.roots_for(parse_volume("/home/x:/in")) == ("/home", "/scratch/jobs")


@pytest.mark.parametrize("text", ["data", "/da/../x", "/data:rx", "/da,ta"])
def test_damaged_allowances(text: str) -> None:
    with pytest.raises(PartError):
        parse_allowance([text], [])


@pytest.mark.parametrize("text", ["80", "0-70000", "20000-19999", "a-b", "20000-"])
def test_damaged_ranges(text: str) -> None:
    with pytest.raises(PartError, match="is not a range of ports from 1024 on"):
        parse_allowance([], [text])


def test_below_is_by_whole_names() -> None:
    assert is_below("/a/b", "/a") and is_below("/a", "/a") and is_below("/a", "/")
    assert not is_below("/ab", "/a") and not is_below("/", "/a")


def test_what_an_environment_has_already() -> None:
    of_site = parse_parts(["/sets:/data:ro"], ["20000:80"], "site")
    parts = parse_parts(["/sets:/data:ro", "/home:/h"], ["20000:80", "20001:81"], "site")
    assert leave_out(parts, of_site) == parse_parts(["/home:/h"], ["20001:81"])
    assert leave_out(of_site, of_site) == ContainerParts()
    with pytest.raises(PartError, match="the environment has /sets:/data:ro there"):
        leave_out(parse_parts(["/home:/data"], []), of_site)
