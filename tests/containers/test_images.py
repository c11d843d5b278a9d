"""The images of docker/: they build without a network, the trainer trains in a slice, the daemon serves in a container.

And it says what is missing in a container; the compose files are run service by service, as few test machines have the
plugin compose.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import engine, images
from benchmarks.base_image import ImageError
from tests.containers.conftest import unavailable
from tests.examples import is_nightly
from tests.k8s.charts import render_objects
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.client import calls
from vgpud.core.units import parse_gpus
from vgpud.host.container_checks import LOOKING
from vgpud.oci.request import Limits, parse_request

DOCKER = Path(__file__).resolve().parents[2] / "docker"
TARGETS = ("cifar-bench", "vgpud", "vgpud-k8s")
TRAINERS = {"a": 400, "b": 300, "c": 200, "d": 100}
#: what a service of ours may say, and the option of `docker run` that says the same
OPTIONS = {
    "cgroup": "--cgroupns",
    "network_mode": "--network",
    "pid": "--pid",
    "runtime": "--runtime",
    "userns_mode": "--userns",
}
LISTS = {"cap_add": "--cap-add", "security_opt": "--security-opt"}
KEYS = {*OPTIONS, *LISTS, "build", "command", "depends_on", "environment", "healthcheck", "image", "restart", "volumes"}
CACHE = "/var/cache/vgpud:/var/cache/vgpud"
pytestmark = pytest.mark.timeout(1200)  # the first test waits for images, on whatever machine this is
TORCH = "2.13.0+cpu"


# ---- building ----


@pytest.fixture(scope="session")
def context(engines_dir: Path) -> Path:
    """A build context with the wheels of the trainers and of this project; complete, so that layers are made once."""
    folder = images.context(engines_dir / "context")
    try:
        images.add_wheels(folder, images.CIFAR)
        images.add_vgpud(folder)
    except images.BuildError as error:
        unavailable(str(error))
    return folder


@pytest.fixture(scope="session")
def torch_context(context: Path) -> Path:
    """The same with PyTorch. Its layers are made again: nothing else is to carry these 200 MB."""
    try:
        images.add_wheels(context, ["numpy>=1.26", f"torch=={TORCH}"])
    except images.BuildError as error:
        pytest.skip(f"no CPU build of PyTorch in the package index here: {error}")
    return context


@pytest.fixture(scope="session")
def python_base(plain_docker: engine.Docker) -> str:
    """The base image with Python, in the engine."""
    try:
        return images.import_base(plain_docker)
    except ImageError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def image_names(plain_docker: engine.Docker, context: Path, python_base: str) -> dict[str, str]:
    """The images by target. Built together: each is a pip that one processor is enough for."""
    with ThreadPoolExecutor(len(TARGETS)) as pool:
        names = pool.map(lambda target: images.build(plain_docker, context, target, python_base), TARGETS)
        return dict(zip(TARGETS, names, strict=True))


@pytest.fixture(scope="session")
def trainer(image_names: dict[str, str]) -> str:
    """The image cifar-bench."""
    return image_names["cifar-bench"]


@pytest.fixture(scope="session")
def vgpud_image(image_names: dict[str, str]) -> str:
    """The image vgpud."""
    return image_names["vgpud"]


@pytest.fixture(scope="session")
def k8s_image(image_names: dict[str, str]) -> str:
    """The image vgpud-k8s."""
    return image_names["vgpud-k8s"]


@pytest.fixture
def cache(engines_dir: Path) -> list[str]:
    """Options that keep the kernels that one container has compiled for the next."""
    folder = engines_dir / "tinygrad"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return ["-v", f"{folder}:/var/cache/tinygrad"]


def config_of(docker: engine.Docker, image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker.cli("inspect", image).stdout)[0]
    return found


@pytest.mark.slow
def test_images_are_small_and_trainers_no_root(docker: engine.Docker, trainer: str, vgpud_image: str) -> None:
    assert config_of(docker, trainer)["Config"]["User"] == "1000:1000"
    base, daemon = (config_of(docker, image)["Size"] for image in (images.BASE, vgpud_image))
    assert daemon < 2 * base, "compilers, pip and wheels stay in the stages before"
    for image in (trainer, vgpud_image):
        tools = docker.run("--entrypoint", "/bin/sh", image, "-c", "ls /opt/venv/bin/pip* /wheels", runtime="runc")
        assert not tools.stdout, tools.stdout
    assert "NVIDIA_VISIBLE_DEVICES" not in str(config_of(docker, trainer)["Config"]["Env"]), "the slice says which"


@pytest.mark.slow
def test_the_image_of_the_chart_runs_as_its_pods_do(docker: engine.Docker, k8s_image: str, tmp_path: Path) -> None:
    """Read-only, root without capabilities: the driver ends with one line where no API server is; and the daemon's init
    container, with the words of the chart."""
    hardened = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    hardened += ["-v", f"{tmp_path}:/host/usr/lib/vgpu"]
    assert "vgpud" in docker.run(*hardened, k8s_image, "vgpud-k8s", "--version", runtime="runc").stdout
    driver = docker.run(*hardened, k8s_image, "vgpud-k8s", "--kubelet-dir=/host/usr/lib/vgpu", runtime="runc")
    assert driver.returncode == 2 and "no API server is known" in driver.stderr, driver.stderr
    spec = next(o for o in render_objects("daemon.mode=pod") if o["metadata"]["name"] == "x-vgpud-daemon")
    (front,) = spec["spec"]["template"]["spec"]["initContainers"]
    done = docker.run(*hardened, k8s_image, *front["command"], runtime="runc")
    assert done.returncode == 0, done.stderr
    assert "socket = /run/vgpud/runtime.sock" in (tmp_path / "current/vgpu-runtime.conf").read_text()


# ---- the trainer ----


@pytest.mark.slow
def test_the_trainer_trains_in_a_slice(docker: engine.Docker, trainer: str, cache: list[str]) -> None:
    done = docker.run(*cache, "-e", "VGPU=0.5", "-e", "VGPU_MEM=1g", trainer, "--steps", "12", "--report-every", "3")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lines[0]["event"], lines[-1]["event"], lines[-1]["step"]] == ["start", "end", 12]
    assert "SIMULATED" in lines[0]["device"] and lines[0]["simulated"] is True


@pytest.mark.slow
def test_without_a_slice_the_trainer_finds_no_driver(docker: engine.Docker, trainer: str, cache: list[str]) -> None:
    done = docker.run(*cache, trainer, "--steps", "1", runtime="runc")
    assert done.returncode != 0 and '"event": "training"' not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not is_nightly(), reason="installs PyTorch in an image: make test-nightly")
def test_the_pytorch_trainer_says_what_it_misses(
    plain_docker: engine.Docker, python_base: str, torch_context: Path
) -> None:
    """Without a device one line that says what to do; on the CPU only on request."""
    image = images.build(plain_docker, torch_context, "cifar-bench-torch", python_base, TORCH=TORCH)
    refused = plain_docker.run(image, runtime="runc")
    assert (refused.returncode, refused.stdout.count("\n")) == (3, 1) and "--device cpu" in refused.stdout
    result = plain_docker.run(image, "--device", "cpu", "--steps", "4", "--batch", "16", runtime="runc")
    assert result.returncode == 0 and json.loads(result.stdout.splitlines()[-1])["step"] == 4, result.stderr


# ---- the daemon in a container ----


def needed_flags(folder: Path) -> dict[str, list[str]]:
    """What `vgpud serve --in-container` insists on: flag as it names it -> words of `docker run`."""
    places = {name: f"{folder / name}:{folder / name}" for name in ("run", "state")}
    return {
        "--pid=host": ["--pid=host"],
        LOOKING: LOOKING.split(),
        f"-v {places['run']}": ["-v", places["run"]],
        f"-v {places['state']}": ["-v", places["state"]],
        f"-v {CACHE}": ["-v", CACHE],
    }


@pytest.mark.slow
def test_the_daemon_refuses_a_container_of_its_own(
    docker: engine.Docker, vgpud_image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("refused")
    flags = needed_flags(folder)
    serve = ["vgpud", "serve", "--in-container", "--runtime-dir", f"{folder}/run", "--state-dir", f"{folder}/state"]
    bare = docker.run(vgpud_image, runtime="runc")
    assert (bare.returncode, bare.stderr.count("\n")) == (2, 1)
    assert "add --pid=host" in bare.stderr and "-v /run/vgpud:/run/vgpud" in bare.stderr
    for missing in flags:
        given = [word for flag, words in flags.items() if flag != missing for word in words]
        done = docker.run("--cgroupns=host", *given, vgpud_image, *serve, runtime="runc")
        assert done.returncode == 2, (missing, done.stderr)
        assert done.stderr.strip().endswith(f"add {missing}"), (missing, done.stderr)


@pytest.mark.slow
def test_a_folder_of_another_name_is_not_the_hosts(
    docker: engine.Docker, vgpud_image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("other")
    words = [word for flag, words in needed_flags(folder).items() if "/run" not in flag for word in words]
    serve = ["vgpud", "serve", "--in-container", "--runtime-dir", f"{folder}/run", "--state-dir", f"{folder}/state"]
    other = ["-v", f"{folder}/elsewhere:{folder}/run", "--cgroupns=host"]
    done = docker.run(*other, *words, vgpud_image, *serve, runtime="runc")
    assert done.stderr.strip().endswith(f"add -v {folder}/run:{folder}/run"), done.stderr


@pytest.mark.slow
def test_setup_installs_through_the_image(docker: engine.Docker, vgpud_image: str, tmp_path: Path) -> None:
    host = tmp_path / "host"
    (host / "etc" / "docker").mkdir(parents=True)
    (host / "etc" / "docker" / "daemon.json").write_text('{"debug": true}')
    command = ["vgpu", "setup", "docker", "--root", "/host"]
    done = docker.run("-v", f"{host}:/host", vgpud_image, *command, runtime="runc")
    assert done.returncode == 0, done.stderr
    daemon = json.loads((host / "etc" / "docker" / "daemon.json").read_text())
    assert daemon["debug"] is True and daemon["runtimes"]["vgpu"]["path"] == "/usr/lib/vgpu/current/vgpu-runtime"
    current = (host / "usr" / "lib" / "vgpu" / "current").readlink()
    front = host / "usr" / "lib" / "vgpu" / current.name / "vgpu-runtime"
    assert os.access(front, os.X_OK)


# ---- compose ----


def merge_tables(under: Any, over: Any) -> Any:
    """As compose lays one file over another: tables by key, everything else replaced."""
    if isinstance(under, dict) and isinstance(over, dict):
        return {key: merge_tables(under.get(key), over.get(key, under.get(key))) for key in {**under, **over}}
    return over


def services(*names: str) -> dict[str, dict[str, Any]]:
    """The services of compose files laid over each other."""
    found: dict[str, Any] = {}
    for name in names:
        found = merge_tables(found, yaml.safe_load((DOCKER / name).read_text())["services"])
    return found


@pytest.mark.parametrize("names", [("compose.yaml",), ("compose.yaml", "compose.sim.yaml")])
def test_the_compose_files_say_what_exists(names: tuple[str, ...]) -> None:
    found = services(*names)
    targets = set()
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("FROM "):
            targets.add(line.split(" AS ")[1])
    assert set(found) == {"vgpud", *TRAINERS}
    for service in found.values():
        assert set(service) <= KEYS
        assert service["build"]["target"] == service["image"] and service["image"] in targets
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    for name, milli in TRAINERS.items():
        env = [f"{key}={value}" for key, value in found[name]["environment"].items()]
        request = parse_request(env, {}, Limits(4000))
        assert request is not None and request.spec is not None and request.name == name
        assert parse_gpus(found[name]["environment"]["VGPU"]) == milli == request.spec.gpus_milli
        assert found[name]["runtime"] == "vgpu" and found[name]["depends_on"] == {
            "vgpud": {"condition": "service_healthy"}
        }
    daemon = found["vgpud"]
    mounts = {tuple(volume.split(":")[:2]) for volume in daemon["volumes"]}
    assert all(source == target for source, target in mounts)
    assert {"/run/vgpud", "/var/cache/vgpud", "/var/lib/vgpud"} <= {source for source, _ in mounts}


def run_words(name: str, service: dict[str, Any], places: dict[str, str], image: str) -> list[str]:
    """A service as words of `docker run -d`; places: the host's folders by the test's own ones."""
    words = ["run", "-d", "--name", name]
    words += [f"{option}={service[key]}" for key, option in OPTIONS.items() if key in service]
    words += [f"{option}={value}" for key, option in LISTS.items() for value in service.get(key, [])]
    for key, value in service.get("environment", {}).items():
        words += ["-e", f"{key}={value}"]
    for volume in service.get("volumes", []):
        source, target, *mode = volume.split(":")
        paths = [places.get(source, source), places.get(target, target)]
        words += ["-v", ":".join([*paths, *mode])]
    return [*words, image, *service.get("command", [])]


class Composed:
    """The compose project on the simulated device, run service by service with folders of the test's own."""

    def __init__(self, docker: engine.Docker, folder: Path, vgpud_image: str, trainer: str) -> None:
        self.docker, self.folder, self.trainer, self.image = docker, folder, trainer, vgpud_image
        self.services = services("compose.yaml", "compose.sim.yaml")
        names = {"/run/vgpud": "run", "/var/lib/vgpud": "state", "/etc/vgpud": "etc", "/etc/cdi": "c", "/run/cdi": "r"}
        self.places = {path: str(folder / name) for path, name in names.items()}
        (folder / "etc").mkdir(parents=True)
        config = {"runtime_dir": folder / "run", "state_dir": folder / "state", "metrics": "off"}
        text = "".join(f'{key} = "{value}"\n' for key, value in config.items())
        (folder / "etc" / "vgpud.toml").write_text(text + "nvidia_cdi_dirs = []\n")
        self.places["/etc/vgpud"] = str(folder / "etc")

    def start(self, cache: list[str]) -> None:
        """Starts daemon and trainers in compose's order."""
        daemon = self.services["vgpud"]
        daemon["environment"] = {**daemon["environment"], "VGPU_SIM_DIR": self.folder / "run" / "sim"}
        words = run_words("boxed", daemon, self.places, self.image)
        words[words.index(f"{self.folder / 'etc'}:{self.folder / 'etc'}:ro")] = f"{self.folder / 'etc'}:/etc/vgpud:ro"
        self.docker.cli(*words)
        wait_for("the daemon in its container", self.serves, 30)
        front = engine.install_front(self.folder / "front", self.folder / "run" / "runtime.sock")
        self.docker.runtimes["boxed"] = front
        self.docker.reload()
        wait_for("dockerd's new runtime", lambda: "boxed" in self.docker.cli("info").stdout, 20)
        for name in TRAINERS:
            service = {**self.services[name], "runtime": "boxed"}
            words = run_words(f"boxed-{name}", service, {}, self.trainer)
            self.docker.cli(*words[:2], *cache, *words[2:], "--report-every", "2")  # not after 50 steps

    def serves(self) -> bool:
        """As the service's health check asks; a container that has ended fails with what it said."""
        state = self.docker.cli("inspect", "-f", "{{.State.Running}}", "boxed").stdout.strip()
        assert state == "true", self.docker.cli("logs", "boxed").stderr
        host = f"VGPU_HOST=unix://{self.folder / 'run' / 'vgpud.sock'}"
        check = self.services["vgpud"]["healthcheck"]["test"]
        assert check[0] == "CMD"
        return self.docker.cli("exec", "-e", host, "boxed", *check[1:], check=False).returncode == 0

    def has_progress(self, name: str) -> bool:
        return '"event": "progress"' in self.docker.cli("logs", f"boxed-{name}").stdout

    def client(self) -> Client:
        return Client(Settings(host=f"unix://{self.folder / 'run' / 'vgpud.sock'}"))


@pytest.fixture
def composition(
    docker: engine.Docker, engines_dir: Path, vgpud_image: str, trainer: str, cache: list[str]
) -> Iterator[Composed]:
    made = Composed(docker, engines_dir / "boxed", vgpud_image, trainer)
    made.start(cache)
    yield made
    docker.remove_all()
    docker.runtimes.pop("boxed", None)
    docker.reload()
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.mark.slow
def test_four_trainers_share_what_a_daemon_in_a_container_has(composition: Composed) -> None:
    for name in TRAINERS:
        wait_for(f"training of {name}", lambda name=name: composition.has_progress(name), 400)
    with composition.client() as client:
        slices = {item.name: item for item in client.all(calls.slices())}
    assert {name: item.devices[0].min_milli for name, item in slices.items()} == TRAINERS
    assert slices["d"].devices[0].max_milli == 1000 and slices["a"].devices[0].max_milli == 400
    for name, item in slices.items():
        (container,) = item.containers
        assert container.pid == composition.docker.pid(f"boxed-{name}")
    composition.docker.cli("rm", "-f", "boxed-a")

    def has_ended() -> bool:
        with composition.client() as client:
            return "a" not in {item.name for item in client.all(calls.slices())}

    wait_for("the slice's end", has_ended, 10)


@pytest.mark.slow
def test_the_images_system_is_not_the_shared_one(docker: engine.Docker, system: OwnSystem, vgpud_image: str) -> None:
    """`vgpu` from the image speaks to whichever daemon's folder is mounted."""
    run = system.folder / "run"
    words = ["-v", f"{run}:/run/vgpud:ro", "-u", "0", vgpud_image, "vgpu", "status", "-o", "json"]
    done = docker.run(*words, runtime="runc")
    assert done.returncode == 0 and "SIMULATED" in done.stdout, done.stderr
