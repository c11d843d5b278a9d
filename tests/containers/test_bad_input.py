"""Requests that cannot be met and unusual containers: documented results (docs/containers.md), asserted here.

What a user sees is the engine's own sentence with ours inside it, and the engine's own exit code.
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import engine
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.libraries import simulated

from .conftest import NVIDIA_HOOK_SAYS
from .helpers import HALF, Engine, at, events, half_a_gpu_is_seen, own_name, slices, until_free, view

OnBase = Callable[[str, str], str]

#: (environment, what is said)
REQUESTS = [
    (["VGPU=abc"], "VGPU: 'abc' is not a number of GPUs: write for example 0.5, 1 or 2.5"),
    (["VGPU=0"], "VGPU: 0 GPUs is too little: ask for 0.001 or more"),
    (
        ["VGPU=1.0001"],
        "VGPU: 1.0001 GPUs is finer than one thousandth: write at most three decimals (0.001 is the smallest)",
    ),
    (["VGPU=3"], "3 GPUs need 3 devices, this node has 2: ask for 2 or less"),
    (
        ["VGPU=9"],
        "VGPU=9 is more than a container may ask for by environment (4): ask by --annotation dev.vgpu/gpus=9, or join"
        " an administrator's slice by VGPU_SLICE",
    ),
    (
        ["VGPU=0.5", "VGPU_MIN=0.8", "VGPU_MAX=0.3"],
        "VGPU_MIN=0.8 is above VGPU_MAX=0.3: lower the minimum or raise the maximum",
    ),
    (
        ["VGPU=0.5", "VGPU_MEM=8x"],
        "VGPU_MEM: '8x' is not an amount of memory: write for example 512M, 8G or 8GiB",
    ),
    (["VGPU=0.5", "VGPU_MEM=5g"], "memory 5GiB is more than device 0 has (4GiB): ask for 4GiB or less"),
    (["VGPU_MEM=1g"], "VGPU_MEM=1g without VGPU: say how many GPUs, for example VGPU=0.5"),
]


def check_refusal(site: Engine, done: subprocess.CompletedProcess[str], text: str) -> None:
    """The engine's exit code and sentence, with ours word for word."""
    assert done.returncode == site.REFUSED, (done.returncode, done.stderr)
    assert text in done.stderr
    if isinstance(site, engine.Docker):
        assert f"OCI runtime create failed: {text}: unknown" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("env", "text"), REQUESTS, ids=[" ".join(env) for env, _ in REQUESTS])
def test_a_request_that_cannot_be_met(docker: engine.Docker, system: OwnSystem, env: list[str], text: str) -> None:
    options = [word for entry in env for word in ("-e", entry)]
    check_refusal(docker, docker.run(*options, engine.BASE, "true"), text)
    assert not slices(system)
    assert any(text in message for message in events(system, "container.refused"))


def test_a_refusal_keeps_its_exit_status(either: Engine) -> None:
    """Both engines search the text for a missing command's words, and would change the status by them."""
    for words in ("permission denied", "no such file or directory"):
        done = either.run("-e", f"VGPU={words}", engine.BASE, "true")
        assert done.returncode == either.REFUSED and "is not a number of GPUs" in done.stderr, done


def test_podman_says_it_as_well(podman: engine.Podman, system: OwnSystem) -> None:
    check_refusal(podman, podman.run("-e", "VGPU=abc", engine.BASE, "true"), REQUESTS[0][1])
    text = "3 GPUs need 3 devices, this node has 2: ask for 2 or less"
    check_refusal(podman, podman.run("--annotation", "dev.vgpu/gpus=3", engine.BASE, "true"), text)
    assert not slices(system)


def test_an_image_that_asks_for_eight_by_annotation(podman: engine.Podman, tmp_path: Path) -> None:
    """podman gives an image's annotations to its containers, where they look like the user's."""
    (tmp_path / "Containerfile").write_text(f"FROM {engine.BASE}\n")
    podman.cli("build", "--annotation", "dev.vgpu/gpus=8", "-t", "greedy", str(tmp_path))
    text = (
        "dev.vgpu/gpus=8 is more than a container may ask for whose image can bring annotations, as with podman (4):"
        " raise container_gpus_max in vgpud.toml, or join an administrator's slice by VGPU_SLICE"
    )
    check_refusal(podman, podman.run("greedy", "true"), text)
    assert podman.run("--annotation", "dev.vgpu/gpus=none", "greedy", "true").returncode == 0


def test_an_image_that_asks_for_eight(docker: engine.Docker, system: OwnSystem, on_base: OnBase) -> None:
    """Its ENV cannot be distinguished from the user's -e: the bound holds for both; the user can omit the request."""
    image = on_base("greedy", "ENV VGPU=8")
    check_refusal(
        docker,
        docker.run(image, "true"),
        "VGPU=8 is more than a container may ask for by environment (4): ask by --annotation dev.vgpu/gpus=8, or join"
        " an administrator's slice by VGPU_SLICE",
    )
    assert docker.run("-e", "VGPU=", image, "true").returncode == 0
    assert docker.run("-e", "VGPU=none", image, "true").returncode == 0
    assert not slices(system)


def test_two_containers_with_one_name(docker: engine.Docker, system: OwnSystem) -> None:
    words = ("-e", "VGPU=0.25", "-e", "VGPU_NAME=same", engine.BASE)
    first = docker.start_container(*words, "sleep", "600")
    name = docker.cli("inspect", "-f", "{{.Name}}", first).stdout.strip().removeprefix("/")
    text = f"slice same is the slice of container {name} ({first[:12]}): choose another VGPU_NAME, or join it with"
    check_refusal(docker, docker.run(*words, "true"), f"{text} VGPU_SLICE=same")
    assert [c.id for c in slices(system)["same"].containers] == [first]


def test_no_such_slice_to_join(docker: engine.Docker, system: OwnSystem) -> None:
    done = docker.run("-e", "VGPU_SLICE=nowhere", engine.BASE, "true")
    check_refusal(docker, done, "no slice 'nowhere' on this node: `vgpu slice ls` lists them")


def test_no_daemon(docker: engine.Docker, podman: engine.Podman, engines_dir: Path) -> None:
    """A clear line instead of a container without a limit; containers that ask for nothing need no daemon."""
    socket = engines_dir / "nowhere" / "runtime.sock"
    alone = engine.install_front(engines_dir / "alone", socket)
    docker.runtimes["alone"] = alone
    docker.reload()
    done = docker.run(*HALF, engine.BASE, "true", runtime="alone")
    text = (
        f"vgpud is not running (no socket at {socket}): start it with `systemctl start vgpud`,"
        " or run the container without asking for a GPU"
    )
    check_refusal(docker, done, text)
    assert docker.run(engine.BASE, "true", runtime="alone").returncode == 0
    check_refusal(podman, podman.run(*HALF, engine.BASE, "true", runtime=str(alone)), text)


def test_a_daemon_that_is_being_restarted_is_waited_for(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    assert system.daemon
    system.daemon.kill()
    words = docker.run_words(*HALF, *at(programs), engine.BASE, "/programs/view")
    command = [engine.find("docker") or "docker", *words]
    with subprocess.Popen(command, env=docker.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        time.sleep(0.3)  # so that it asks a daemon that is away
        system.start_daemon()
        out, err = run.communicate(timeout=60)
    half_a_gpu_is_seen(view(subprocess.CompletedProcess(command, run.returncode, out, err)))


@pytest.mark.parametrize(
    "options",
    [("--read-only",), ("--user", "1000"), ("--init",), ("--privileged",), ("--cap-drop=ALL",), ("--tmpfs", "/run")],
    ids=" ".join,
)
def test_containers_of_other_shapes(docker: engine.Docker, programs: Path, options: tuple[str, ...]) -> None:
    if options == ("--privileged",):
        plain = docker.run(*options, engine.BASE, "true", runtime="runc")
        if plain.returncode:
            pytest.skip(f"dockerd may not give all rights here (podman's test does it): {plain.stderr.splitlines()[0]}")
    half_a_gpu_is_seen(view(docker.run(*HALF, *options, *at(programs), engine.BASE, "/programs/view")))


@pytest.mark.parametrize(
    "options",
    [
        ("--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"),
        ("--read-only",),
        ("--user", "1000"),
        ("--privileged",),
    ],
    ids=" ".join,
)
def test_containers_of_other_shapes_on_podman(podman: engine.Podman, programs: Path, options: tuple[str, ...]) -> None:
    half_a_gpu_is_seen(view(podman.run(*HALF, *options, *at(programs), engine.BASE, "/programs/view")))


#: started in dockerd's place: with a range of subordinate ids, as /etc/subuid of a configured machine has it
REMAPPED = """#!/bin/sh
exec unshare -m --propagation slave sh -c '
  mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"' {ids} {dockerd} "$@"
"""


def test_a_dockerd_whose_containers_have_user_namespaces(
    engines_dir: Path, system: OwnSystem, image_tar: Path, front: Path, programs: Path
) -> None:
    """Root in the container is uid 100000 outside: the cgroup says whose it is."""
    folder = engines_dir / "remapped"
    folder.mkdir()
    ids, wrapper = folder / "ids", folder / "dockerd"
    ids.write_text("daemon:100000:65536\n")
    remapped = engine.Docker(folder / "d", {"vgpu": front}, {"userns-remap": "daemon"})
    wrapper.write_text(REMAPPED.format(ids=ids, dockerd=remapped.program))
    wrapper.chmod(0o755)
    remapped.program = str(wrapper)
    with remapped:
        remapped.import_base(image_tar)
        for user in ("0", "1000"):
            options = (*HALF, "--user", user, *at(programs))
            assert "100000" in remapped.run(*options, engine.BASE, "cat", "/proc/self/uid_map").stdout
            half_a_gpu_is_seen(view(remapped.run(*options, engine.BASE, "/programs/view")))


def test_an_image_without_a_shell(docker: engine.Docker, programs: Path) -> None:
    """Nothing but the program and what it is linked to."""
    needed = "libc.so.6 libdl.so.2 libpthread.so.0"
    shown = docker.run(engine.BASE, "sh", "-c", f"cd /lib && find . -name {needed.split()[0]}", runtime="runc")
    folder = f"/lib/{Path(shown.stdout.strip()).parent}"
    loader = docker.run(engine.BASE, "sh", "-c", "ls /lib*/ld-linux-*", runtime="runc").stdout.strip()
    lines = [
        f"FROM {engine.BASE} AS full",
        "FROM scratch",
        f"COPY --from=full {loader} {loader}",
        f"COPY --from=full {' '.join(f'{folder}/{name}' for name in needed.split())} {folder}/",
        "COPY view /view",
        "",
    ]
    image = docker.build("vgpu-test/no-shell", "\n".join(lines), {"view": programs / "view"})
    half_a_gpu_is_seen(view(docker.run(*HALF, image, "/view")))


def test_an_image_without_glibc_is_refused(docker: engine.Docker, system: OwnSystem, tmp_path: Path) -> None:
    source, program = tmp_path / "said.c", tmp_path / "said"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", str(program), str(source)], check=True)
    image = docker.build("vgpu-test/static", 'FROM scratch\nCOPY said /said\nCMD ["/said"]\n', {"said": program})
    assert docker.run(image).returncode == 0
    done = docker.run(*HALF, image)
    check_refusal(
        docker,
        done,
        f"this image cannot be held to a slice: no glibc for {platform.machine()} in it, it has no C library at all, or"
        " another machine's; build on a glibc image such as debian:bookworm-slim, or run it without VGPU",
    )
    assert not slices(system)


def test_an_image_with_its_own_preloads(docker: engine.Docker, programs: Path, tmp_path: Path) -> None:
    """Both are loaded: ours, and the image's, which makes every process uid 4242 here."""
    source, library = tmp_path / "uid.c", tmp_path / "uid.so"
    source.write_text("unsigned geteuid(void) { return 4242; }\nunsigned getuid(void) { return 4242; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    lines = f"FROM {engine.BASE}\nCOPY uid.so /opt/uid.so\nRUN echo /opt/uid.so > /etc/ld.so.preload\n"
    image = docker.build("vgpu-test/preloads", lines, {"uid.so": library})
    done = docker.run(*HALF, *at(programs), image, "sh", "-c", "id -u; cat /etc/ld.so.preload")
    ours = ["/usr/lib/vgpu/libvgpu.so", "/usr/lib/vgpu/libvgpu-ml.so"]
    libraries = simulated.cuda_libraries(paths.sim_lib_dir() / "libcuda.so.1")
    cuda = [f"/usr/lib/vgpu/{simulated.FOLDER}/{path.name}" for path in libraries]
    assert done.stdout.splitlines() == ["4242", *ours, *cuda, "/opt/uid.so"], done
    half_a_gpu_is_seen(view(docker.run(*HALF, *at(programs), image, "/programs/view")))


def test_gpus_all_together_with_the_runtime(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    """NVIDIA's hook, which dockerd adds for --gpus, is taken out (here it would fail) and that is said."""
    assert NVIDIA_HOOK_SAYS in docker.run("--gpus", "all", engine.BASE, "true", runtime="runc").stderr
    done = docker.run("--gpus", "all", *HALF, *at(programs), engine.BASE, "/programs/view")
    half_a_gpu_is_seen(view(done))
    assert any("--gpus" in message for message in events(system, "container.warning"))


def test_gpus_all_without_a_request_is_refused(docker: engine.Docker) -> None:
    """A user of this runtime cannot ask for whole devices outside every slice."""
    done = docker.run("--gpus", "all", engine.BASE, "true")
    assert done.returncode == docker.REFUSED
    assert "VGPU=" in done.stderr, done.stderr


def test_a_command_that_does_not_exist_leaves_nothing(either: Engine, system: OwnSystem) -> None:
    done = either.run(*HALF, engine.BASE, "/no/such/command")
    assert done.returncode == 127, done.stderr
    until_free(system)


def test_a_full_node_refuses_and_names_what_is_left(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    holders = [docker.start_container("-e", "VGPU=0.75", *at(programs), engine.BASE, "sleep", "600") for _ in range(2)]
    check_refusal(
        docker,
        docker.run("-e", "VGPU=0.5", engine.BASE, "true"),
        "no device has min 0.5 and memory 2GiB left: device 0 has the most free: 0.25 GPU and 1GiB;"
        " ask for less, lower the minimum or remove a slice",
    )
    docker.remove(*holders)
    until_free(system)


def test_a_stopped_container_has_no_slice_until_it_is_started(docker: engine.Docker, system: OwnSystem) -> None:
    words = docker.run_words(*HALF, engine.BASE, "sleep", "600", remove=False)[1:]
    container = docker.cli("create", *words).stdout.strip()
    assert not slices(system)
    docker.cli("start", container)
    assert list(slices(system)) == [own_name(container)]
    docker.cli("stop", "-t", "0", container)
    until_free(system)
