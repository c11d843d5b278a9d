"""Jobs in images: whose the container is, what it cannot do, what it is given, and that it goes with the job."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import engine
from tests.jobs.test_runner import Place, daemon, on_a_loop, until
from tests.ports import find_free_ports
from tests.runtime.supervisors import USER
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.core.jobs.image_name import image_error
from vgpud.core.jobs.terminal import Kind
from vgpud.host import listeners
from vgpud.jobs.image import Engine
from vgpud.jobs.messages import Attempt, ContainerNeeds, Member, Mount
from vgpud.jobs.runner import StartError

from .helpers import events, slices, vgpu

#: of the container, as its own tools say it
ASKED = "id -u; id -g; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; echo \"$GIVEN|$HOME|$VGPU\""


@pytest.fixture(params=["docker", "podman"])
def site(request: pytest.FixtureRequest) -> Engine:
    """The site's engine: its client's words and environment."""
    made = request.getfixturevalue(request.param)
    if isinstance(made, engine.Docker):
        program: tuple[str, ...] = (engine.find("docker") or "docker",)
    else:
        made.cli("version")  # makes its world
        world = ("/usr/bin/nsenter", f"--mount=/proc/{made._world.process.pid}/ns/mnt") if made._world else ()
        roots = ("--root", f"{made.folder}/root", "--runroot", f"{made.folder}/runroot", "--runtime", "vgpu")
        program = (*world, engine.find("podman") or "podman", *roots)
    names = ("DOCKER_HOST", "CONTAINERS_CONF", "PATH")
    words = {name: value for name, value in made.env.items() if name in names}
    return Engine(program, "vgpu", "none", words)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


def in_image(place: Place, script: str, slice_name: str = "", env: dict[str, str] | None = None) -> Attempt:
    member = Member(("sh", "-c", script), env or {}, str(place.home / "log"), slice_name)
    return replace(place.attempt(""), members=(member,), image=engine.BASE)


def list_containers(site: Engine, attempt: Attempt) -> str:
    """Containers of the attempt."""
    words = [*site.program, "ps", "-aq", "--filter", f"name=vgpu-job-{attempt.name}"]
    return engine.call(words, {**os.environ, **site.environment}, True, 60).stdout


@on_a_loop
async def test_whose_it_is(place: Place, site: Engine) -> None:
    """The user's, without any right of root's, and with nothing but what was named."""
    async with daemon(place, engine=site) as (jobs, ends, _):
        attempt = in_image(place, ASKED + "; exit 3", env={"GIVEN": 'a "b" #c $d', "VGPU": "4"})
        await jobs.start(attempt)
        result = (await ends.next())[2]
        log = place.home / "log"
        assert (result.exit_code, log.stat().st_uid) == (3, USER), log.read_text()
        said = log.read_text().split()
        assert said[:2] == [str(USER)] * 2 and said[2:8] == [
            "CapEff:",
            "0" * 16,
            "CapBnd:",
            "0" * 16,
            "NoNewPrivs:",
            "1",
        ]
        given, home, asked = log.read_text().split("\n")[-2].split("|")
        assert (given, asked) == ('a "b" #c $d', "") and str(place.folder) not in home
        assert not list_containers(site, attempt)
        await jobs.forget(*attempt.key)
        assert not list(place.jobs.glob("*.env"))


@on_a_loop
async def test_it_has_the_jobs_slice(place: Place, site: Engine, system: OwnSystem) -> None:
    """Joined by name: the slice's socket is there, and the slice is in use while it runs."""
    vgpu(system, "slice", "create", "team", "--gpus", "0.5", "--mem", "1g", "--owner", str(USER))
    async with daemon(place, engine=site) as (jobs, ends, _):
        attempt = in_image(place, "cat /proc/self/mountinfo; while :; do sleep 0.1; done", "team", {"VGPU": "2"})
        await jobs.start(attempt)
        await until("the container", lambda: any("slice team" in text for text in events(system, "container.created")))
        await until("its socket", lambda: "slices/team" in place.read("log"))
        await jobs.stop(*attempt.key, 0)
        await ends.next()
    assert list(slices(system)) == ["team"]


@on_a_loop
async def test_it_ends_with_the_job(place: Place, site: Engine) -> None:
    """Also one that does not listen: its engine removes it."""
    async with daemon(place, engine=site) as (jobs, ends, _):
        attempt = in_image(place, "trap '' TERM; echo begun; while :; do sleep 0.1; done")
        await jobs.start(attempt)
        await until("its first word", lambda: "begun" in place.read("log"))
        assert list_containers(site, attempt)
        await jobs.stop(*attempt.key, 0.5)
        result = (await ends.next())[2]
        assert result.is_stopped and result.exit_code == 137
        assert not list_containers(site, attempt)


#: saves for longer than what is left behind has, as programs do at SIGTERM
SAVE = "trap 'sleep 3; echo saved; exit 0' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.mark.parametrize(
    "script", ['sh -c "$SAVE"; echo done', 'sh -c "$SAVE" & wait', "bash -c 'sh -c \"$SAVE\"; :'; :"]
)
@on_a_loop
async def test_who_saves_below_a_script_is_notified_and_has_the_grace(place: Place, site: Engine, script: str) -> None:
    """A container's first process never sees a SIGTERM for which it has no handler: nor would what it has started."""
    async with daemon(place, engine=site) as (jobs, ends, _):
        attempt = in_image(place, script, env={"SAVE": SAVE})
        await jobs.start(attempt)
        await until("its first word", lambda: "begun" in place.read("log"))
        await jobs.stop(*attempt.key, 30)
        assert (await ends.next())[2].is_stopped
        assert "saved" in place.read("log")
        assert not list_containers(site, attempt)


@on_a_loop
async def test_it_ends_with_a_supervisor_that_is_killed(place: Place, site: Engine) -> None:
    async with daemon(place, engine=site) as (jobs, ends, _):
        attempt = in_image(place, "echo begun; while :; do sleep 0.1; done")
        started = await jobs.start(attempt)
        await until("its first word", lambda: "begun" in place.read("log"))
        os.kill(started.pid, signal.SIGKILL)
        assert (await ends.next())[2].is_lost
        assert not list_containers(site, attempt)


@on_a_loop
async def test_log_is_opened_as_the_user(place: Place, site: Engine) -> None:
    async with daemon(place, engine=site) as (jobs, ends, _):
        good = in_image(place, "true")
        bad = replace(good, members=(replace(good.members[0], log=str(place.jobs / "log")),))
        await jobs.start(bad)
        result = (await ends.next())[2]
        assert result.exit_code == 126 and "cannot write the log" in result.why
        assert not (place.jobs / "log").exists()


@on_a_loop
async def test_a_terminal(place: Place, site: Engine) -> None:
    """The container's own, of the window's size; no keys leave the engine's client, which would end the job."""
    async with daemon(place, engine=site) as (jobs, ends, _):
        script = "test -t 0 && test -t 2 && echo begun-$((1 + 1)); read word; echo got-$word; id -u; exit 4"
        attempt = replace(in_image(place, script), terminal=True)
        await jobs.start(attempt)
        terminal = jobs.terminal(attempt.key)
        assert terminal
        await terminal.resize(33, 99)
        seen = b""
        for wanted, keys in ((b"begun-2", b"\x10\x11word\n"), (b"word\r\n%d" % USER, b"")):
            while wanted not in seen:
                heard = await terminal.hear()
                assert heard.kind is not Kind.ENDED, seen
                seen += heard.data
            await terminal.type(keys)
        assert b"got-" in seen
        terminal.close()
        result = (await ends.next())[2]
        assert result.exit_code == 4
        assert (place.home / "log").stat().st_uid == USER and "begun-2" in place.read("log")
        assert not list_containers(site, attempt)


@on_a_loop
async def test_refusals(place: Place, site: Engine) -> None:
    async with daemon(place, engine=site) as (jobs, _, _):
        good = in_image(place, "true")
        rows = [
            (replace(good, image="--privileged"), "'--privileged' is not the name of an image"),
            (replace(good, image="oci:/etc"), "'oci:/etc' is not the name of an image"),
            (replace(good, image="oci:etc"), "'oci:etc' names files of this node"),
            (in_image(place, "true", env={"A": "1\n2"}), "variable 'A' cannot be given to a container: it has line"),
            (in_image(place, "true", env={"A B": "1"}), "variable 'A B' cannot be given to a container: write"),
        ]
        for attempt, why in rows:
            with pytest.raises(StartError) as refused:
                await jobs.start(attempt)
            assert str(refused.value).startswith(why) and not refused.value.may_retry


def with_mount(place: Place, host: Path, roots: tuple[str, ...], script: str, *, is_read_only: bool = False) -> Attempt:
    """A job that has a directory of the node at /data."""
    mount = Mount(str(host), "/data", is_read_only, roots)
    return replace(in_image(place, script), needs=ContainerNeeds((mount,)))


@on_a_loop
async def test_volumes(place: Place, site: Engine) -> None:
    """The directory itself, with the user's rights; for reading only where it is so."""
    if site.program[0].endswith("nsenter"):
        pytest.skip("this podman has a mount namespace of its own, where nothing that is bound outside is seen")
    data = place.home / "data"
    data.mkdir()
    (data / "word").write_text("there")
    os.chown(data, USER, USER)
    async with daemon(place, engine=site) as (jobs, ends, _):
        for is_read_only, code in ((False, 0), (True, 1)):
            script = "cat /data/word; echo >/data/new"
            attempt = with_mount(place, data, (str(place.home),), script, is_read_only=is_read_only)
            await jobs.start(attempt)
            result = (await ends.next())[2]
            assert (min(result.exit_code, 1), "there" in place.read("log")) == (code, True), place.read("log")
            await jobs.forget(*attempt.key)
            assert (data / "new").stat().st_uid == USER


@on_a_loop
async def test_ports(place: Place, site: Engine) -> None:
    """What is published is among the engine's words; without a network it publishes nothing."""
    async with daemon(place, engine=site) as (jobs, ends, _):
        needs = ContainerNeeds(ports=((20_001, 8080),), address="127.0.0.1")
        attempt = replace(in_image(place, "exit 0"), needs=needs)
        await jobs.start(attempt)
        result = (await ends.next())[2]
        assert result.exit_code == 0, place.read("log")


#: says where it was asked, and its token, to the first who connects
SERVE = """
exec perl -MIO::Socket::INET -e '
  my $port = IO::Socket::INET->new(LocalAddr => $ENV{VGPU_SESSION_HOST}, LocalPort => $ENV{VGPU_SESSION_PORT},
                                   Listen => 1, ReuseAddr => 1) or die "listen: $!";
  my $client = $port->accept;
  <$client>;
  print $client "$ENV{VGPU_SESSION_BASE_TB} $ENV{VGPU_SESSION_TOKEN}"; close $client;'
"""


@on_a_loop
async def test_a_session_serves_at_its_port(place: Place, site: Engine) -> None:
    """In the node's network, where the port is the program's own: these engines have no other network."""
    (port,) = find_free_ports(1)
    said = {"HOST": "127.0.0.1", "PORT": str(port), "TOKEN": "secret", "BASE_TB": "/session/1-tb/"}
    env = {f"VGPU_SESSION_{name}": value for name, value in said.items()}
    async with daemon(place, engine=replace(site, network="host")) as (jobs, ends, _):
        await jobs.start(in_image(place, SERVE, env=env))
        await until("its port", lambda: listeners.listener_uid(port) is not None)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            assert listeners.server_uid(port, sock.getsockname(), is_published=True) == USER
            sock.sendall(b"\n")
            assert sock.recv(4096) == b"/session/1-tb/ secret"
        assert (await ends.next())[2].exit_code == 0, place.read("log")


@on_a_loop
async def test_what_is_refused_when_it_starts(place: Place, site: Engine) -> None:
    """The reason is the job's, and its log has it: a link that leads away, another user's directory, an image that is
    nowhere."""
    closed = place.folder / "closed"
    (closed / "inner").mkdir(mode=0o755, parents=True)
    closed.chmod(0o700)
    (place.home / "link").symlink_to("/etc")
    rows = [
        (with_mount(place, place.home / "link", (str(place.home),), "true"), "is /etc, which is not below"),
        (with_mount(place, closed / "inner", (str(place.folder),), "true"), "Permission denied"),
        (with_mount(place, place.home / "none", (str(place.folder),), "true"), "No such file or directory"),
        (
            replace(in_image(place, "true"), image="localhost:1/nowhere:1"),
            "image localhost:1/nowhere:1 cannot be pulled",
        ),
    ]
    async with daemon(place, engine=site) as (jobs, ends, _):
        for attempt, why in rows:
            await jobs.start(attempt)
            result = (await ends.next())[2]
            assert result.exit_code == 125 and why in result.why and "\n" not in result.why, result
            assert why in place.read("log")
            await jobs.forget(*attempt.key)
            assert not [path for path in place.jobs.iterdir() if path.name.startswith(attempt.name)]


def test_names_of_images() -> None:
    good = (
        "ubuntu",
        "a/b",
        "nvcr.io/nvidia/pytorch:24.01-py3",
        "localhost:5000/x@sha256:" + "a" * 64,
        "r.io/a__b/c-d.e",
    )
    bad = ("", "-v", "/etc", "dir:/etc", "docker-archive:x", "docker://x", "a b", "A/B:-x", "a:b:c", "../x", "x" * 400)
    assert [name for name in good if image_error(name)] == []
    assert [name for name in bad if not image_error(name)] == []
