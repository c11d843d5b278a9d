"""The site's environments in the API: who sees which, what a job gets of one, what it may name of the node."""

from __future__ import annotations

import pytest

from tests.api.job_world import ALICE, BOB, ROOT, World
from vgpud.core.jobs.container_parts import parse_allowance, parse_parts
from vgpud.core.jobs.environments import Audience, Catalog, Environment, Registry
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import SECOND_NS, JobSpec
from vgpud.v1alpha1 import vgpud_pb2 as pb

IMAGE = "registry.example/pytorch:2"
PYTORCH = Environment(
    name="pytorch",
    description="PyTorch",
    audience=Audience(("alice",), frozenset({"uid:1000"})),
    image=IMAGE,
    command=("python", "train.py"),
    variables=(("HF_HOME", "/data/hf"), ("LANG", "C")),
    parts=parse_parts(["/sets:/data:ro"], [], "site"),
    gpus_milli=250,
    mem_bytes=2 << 30,
    cpu_milli=2000,
    ram_bytes=4 << 30,
    time_limit_s=3600,
)
SHELL = Environment("shell", command=("bash",), gpus_milli=100)
BIG = Environment("big", command=("train",), gpus_milli=4_000, queue="bob")


@pytest.fixture
def world() -> World:
    made = World()
    closed = Audience(("bob",), frozenset({"uid:1001"}))
    made.site.catalog = Catalog(
        {"big": BIG, "pytorch": PYTORCH, "shell": SHELL},
        {"site": Registry("site", "/etc/auth.json", closed), "open": Registry("open", "/etc/open.json")},
        unknown=("gone",),
    )
    made.site.allowance = parse_allowance(["/home"], ["20000-20009"])
    return made


def find_spec(world: World) -> JobSpec:
    return world.backend.submissions[-1].spec


def find_launch(world: World) -> Launch:
    launch = find_spec(world).run
    assert isinstance(launch, Launch)
    return launch


def list_environments(world: World, who: object = ALICE) -> pb.ListEnvironmentsResponse:
    answer: pb.ListEnvironmentsResponse = world.call(
        world.jobs.ListEnvironments,
        pb.ListEnvironmentsRequest(),
        who,  # type: ignore[arg-type]
    )
    return answer


def test_each_sees_what_they_may_use(world: World) -> None:
    assert [one.name for one in list_environments(world).environments] == ["big", "pytorch", "shell"]
    assert [one.name for one in list_environments(world, BOB).environments] == ["big", "shell"]
    shown = list_environments(world).environments[1]
    assert (shown.defaults.image, list(shown.defaults.volumes)) == (IMAGE, ["/sets:/data:ro"])
    assert list(shown.members) == ["alice"] and shown.defaults.time_limit.seconds == 3600


def test_what_is_wrong_with_the_file_is_for_admins(world: World) -> None:
    assert (
        list_environments(world, ROOT).problem == "the list names members that do not exist: gone"
        and not list_environments(world).problem
    )
    world.site.problem = "/etc/vgpud/environments.toml line 3: secret"
    assert list_environments(world, ROOT).problem == f"{world.site.problem}; the last valid list is in force"
    assert "secret" not in list_environments(world).problem and "tell an admin" in list_environments(world).problem


def test_a_job_gets_the_defaults(world: World) -> None:
    world.submit(slice=pb.SliceSpec(), command=[], environment={"LANG": "de"}, environment_name="pytorch")
    spec, launch = find_spec(world), find_launch(world)
    assert (spec.ask.spec.gpus_milli, spec.ask.spec.mem_max_bytes, spec.ask.cpu_milli) == (250, 2 << 30, 2000)
    assert (spec.time_limit_ns, spec.ask.ram_bytes) == (3600 * SECOND_NS, 4 << 30)
    assert (launch.image, launch.command) == (IMAGE, ("python", "train.py"))
    assert dict(launch.environment) == {"HF_HOME": "/data/hf", "LANG": "de"}
    assert (launch.environment_name, launch.site_parts.registry) == ("pytorch", "site")


def test_what_the_job_says_goes_first(world: World) -> None:
    spec = pb.SliceSpec(gpus_milli=700, mem_max_bytes=1 << 30)
    world.submit(slice=spec, command=["bash"], environment_name="pytorch", cpu_milli=500)
    asked = find_spec(world).ask
    assert (asked.spec.gpus_milli, asked.spec.mem_max_bytes, asked.cpu_milli) == (700, 1 << 30, 500)
    assert find_launch(world).command == ("bash",)


def test_a_view_shows_what_the_job_added_itself(world: World) -> None:
    """So that a job like it gets what the environment has then."""
    ids = world.submit(environment_name="pytorch", volumes=["/home/a:/h", "/sets:/data:ro"])
    job = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=ids[0])).job
    assert (list(job.spec.volumes), job.spec.environment_name, job.spec.registry) == (["/home/a:/h"], "pytorch", "")


def test_an_environment_that_is_not_for_the_user(world: World) -> None:
    """As one that is not there: its name tells nothing."""
    for name in ("pytorch", "none"):
        request = pb.SubmitJobRequest(spec=pb.JobSpec(environment_name=name))
        code, text = world.refusal(world.jobs.SubmitJob, request, BOB)
        assert (code, text) == ("NOT_FOUND", f"no environment {name!r}: there are big, shell (`vgpu env ls`)")
    assert not world.backend.submissions


def test_another_image_has_not_its_credentials(world: World) -> None:
    spec = pb.JobSpec(environment_name="pytorch", image="evil", directory="/")
    code, text = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec))
    assert code == "INVALID_ARGUMENT" and "leave the image or the environment out" in text


def test_an_environment_that_asks_for_more_than_its_user_may_have(world: World) -> None:
    """The queue of the environment is not the user's: the refusal is the usual one, and says where it comes from."""
    spec = pb.JobSpec(environment_name="big", directory="/")
    code, text = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec))
    assert code == "PERMISSION_DENIED" and text.startswith("queue bob is not for uid 1000")
    assert text.endswith("(with the defaults of environment big)")
    assert world.submit(BOB, slice=pb.SliceSpec(), command=[], environment_name="big")


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"volumes": ["/etc:/in:ro"]}, "INVALID_ARGUMENT", "/etc is not below a directory that jobs may have"),
        ({"volumes": ["/home/../etc:/in"]}, "INVALID_ARGUMENT", "has a `..`"),
        ({"volumes": ["/home/x"]}, "INVALID_ARGUMENT", "is not HOST:CONTAINER"),
        ({"ports": ["80"]}, "INVALID_ARGUMENT", "80 of this node is not for jobs"),
        ({"ports": ["20000"], "members": 2}, "INVALID_ARGUMENT", "port 20000 for several programs"),
        ({"ports": ["20000"], "array_indices": [1, 2]}, "INVALID_ARGUMENT", "port 20000 for several programs"),
        ({"registry": "site"}, "NOT_FOUND", "no registry 'site': there are open; a file is /path/to/it"),
        ({"registry": "none"}, "NOT_FOUND", "no registry 'none': there are open"),
        ({"registry": "a b"}, "INVALID_ARGUMENT", "is neither a name nor a path"),
        ({"volumes": ["/home/x:/in"], "image": "", "command": ["x"]}, "INVALID_ARGUMENT", "are for a container"),
    ],
)
def test_refused_parts(world: World, fields: dict[str, object], code: str, why: str) -> None:
    values: dict[str, object] = {"slice": pb.SliceSpec(gpus_milli=100), "image": IMAGE, "directory": "/", **fields}
    refused = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=pb.JobSpec(**values)))  # type: ignore[arg-type]
    assert refused[0] == code and why in refused[1]
    assert not world.backend.submissions


def test_a_site_that_runs_the_images_of_its_list_only(world: World) -> None:
    world.site.allowance = parse_allowance([], [], any_image=False)
    spec = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=100), image="x:1", directory="/")
    code, text = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec))
    assert code == "PERMISSION_DENIED" and text.startswith("image x:1: this site runs images of its environments only")
    world.submit(ROOT, image="x:1")
    world.submit(environment_name="pytorch")
    world.submit(command=["true"])


@pytest.mark.parametrize("network", ["none", "container:db", "ns:/run/netns/x"])
def test_a_session_in_an_image_needs_a_network(world: World, network: str) -> None:
    world.site.allowance = parse_allowance([], [], network)
    spec = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=100), image="x:1", directory="/", session="web", command=["serve"])
    code, text = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec))
    assert code == "INVALID_ARGUMENT" and f"containers of jobs have the network {network!r} here" in text
    world.submit(image="x:1", session="shell", command=["sh"])
    for other in ("", "bridge", "of-jobs", "host"):
        world.site.allowance = parse_allowance([], [], other)
        world.submit(image="x:1", session="web", command=["serve"])


def test_parts_that_are_allowed(world: World) -> None:
    parts = {"volumes": ["/home/a:/h"], "ports": ["20000:80"], "registry": "/home/a/auth.json"}
    world.submit(image=IMAGE, **parts)
    assert find_launch(world).parts == parse_parts(["/home/a:/h"], ["20000:80"], "/home/a/auth.json")
    world.submit(BOB, image=IMAGE, registry="site")
    assert find_launch(world).parts.registry == "site"
