"""The driver's side of an API server that is slow, gone, forgetful, or has other keys than yesterday."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lightkube import AsyncClient, KubeConfig

from tests.k8s.fake_api import SLICES, FakeApi
from tests.k8s.parts import NODE, kubeconfig
from vgpud.k8s.core.events import ClaimRead, PoolSeen
from vgpud.k8s.core.model import Ref
from vgpud.k8s.core.published import Changes, Write
from vgpud.k8s.shell import api_server
from vgpud.k8s.shell.api_server import ApiServer


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as made:
        made.add_node(NODE)
        yield made


@pytest.fixture
def connect(api: FakeApi, tmp_path: Path) -> Callable[[], AsyncClient]:
    config = kubeconfig(tmp_path, api.url)

    def make_client() -> AsyncClient:
        return AsyncClient(KubeConfig.from_file(config), trust_env=False)

    return make_client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "AGAIN_S", 0.01)
    monkeypatch.setattr(api_server, "AGAIN_MAX_S", 0.02)


def add(api: FakeApi, node: str = NODE) -> str:
    """A ResourceSlice of some driver's; returns its name."""
    name = f"0-{uuid.uuid4().hex[:5]}"
    spec = {"driver": "gpu.vgpu.dev", "nodeName": node, "pool": {"name": node, "generation": 1}}
    api.put(f"{SLICES}/{name}", {"metadata": {"name": name}, "spec": spec})
    return name


class Watched:
    """What the driver's watch has reported."""

    def __init__(self) -> None:
        self.events: list[PoolSeen] = []

    async def until(self, *names: str) -> None:
        """Until these ResourceSlices, and no others, were reported last."""

        async def wait() -> None:
            while not self.events or {one["metadata"]["name"] for one in self.events[-1].slices} != set(names):
                await asyncio.sleep(0.005)

        await asyncio.wait_for(wait(), 30)

    @property
    def lists(self) -> int:
        return sum(event.is_from_list for event in self.events)


@asynccontextmanager
async def watching(connect: Callable[[], AsyncClient]) -> AsyncIterator[Watched]:
    server, watched = ApiServer(connect, NODE), Watched()
    task = asyncio.create_task(server.watch_pool(watched.events.append))
    try:
        yield watched
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()


def test_only_the_nodes_own_slices_are_watched(api: FakeApi, connect: Callable[[], AsyncClient]) -> None:
    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            add(api, "another")
            name = add(api)
            await watched.until(name)
            assert len(watched.events) == 2

    asyncio.run(story())


def test_a_claim_is_gone_only_if_the_server_says_so_of_that_claim(
    api: FakeApi, connect: Callable[[], AsyncClient]
) -> None:
    """A 404 may be of a server that starts and does not know the path yet, or of something before the server."""

    async def story() -> None:
        server = ApiServer(connect, NODE)
        ref = Ref("u", "team", "half")
        assert await server.read_claim(ref) == ClaimRead("u")
        api.has_no_paths = True
        assert "could not find the requested resource" in (await server.read_claim(ref)).error
        await server.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("version", "server_version"),
    [("v1.34.1", (1, 34)), ("v1.35.2-gke.1", (1, 35)), ("", None), ("unknown", None)],
)
def test_a_list_says_the_servers_version(
    api: FakeApi, connect: Callable[[], AsyncClient], version: str, server_version: tuple[int, int] | None
) -> None:
    api.version = version

    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            assert watched.events[0].server == server_version

    asyncio.run(story())


def test_a_silent_watch_is_opened_again_and_nothing_is_read_again(
    api: FakeApi, connect: Callable[[], AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "WATCH_S", (0.05, 0.1))

    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            while api.watches < 5:
                await asyncio.sleep(0.01)
            name = add(api)
            await watched.until(name)
            assert watched.lists == 1

    asyncio.run(story())


def test_a_version_that_the_server_has_forgotten_is_read_again(
    api: FakeApi, connect: Callable[[], AsyncClient], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_server, "WATCH_S", (0.05, 0.1))
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            name = add(api, "another")
            api.remove(f"{SLICES}/{name}")
            api.forgotten_version = int(api.put("/x", {})["metadata"]["resourceVersion"])
            while watched.lists < 2:
                await asyncio.sleep(0.01)
            name = add(api)
            await watched.until(name)

    asyncio.run(story())
    assert "cannot be watched" not in caplog.text


def test_an_outage_is_two_lines_of_the_log(
    api: FakeApi, connect: Callable[[], AsyncClient], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vgpud.k8s")

    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            api.broken = True
            await asyncio.sleep(0.5)
            name = add(api)
            api.broken = False
            await watched.until(name)

    asyncio.run(story())
    said = [record.getMessage() for record in caplog.records if record.name == "vgpud.k8s"]
    assert said[-1] == "the API server answers again"
    assert len([text for text in said if "cannot be watched" in text]) <= 2, said


def test_another_token_on_disk_is_taken_when_the_old_one_is_refused(api: FakeApi, tmp_path: Path) -> None:
    token, names = tmp_path / "token", iter(("old", "new"))

    def issue() -> None:
        api.token = next(names)
        token.write_text(api.token)

    issue()

    def connect() -> AsyncClient:
        config = kubeconfig(tmp_path, api.url)
        config.write_text(config.read_text().replace("user: {}", f"user: {{token: {token.read_text()}}}"))
        return AsyncClient(KubeConfig.from_file(config), trust_env=False)

    async def story() -> None:
        async with watching(connect) as watched:
            await watched.until()
            issue()
            api.forgotten_version = int(api.put("/x", {})["metadata"]["resourceVersion"])
            api.broken = True
            await asyncio.sleep(0.3)
            api.broken = False
            name = add(api)
            await watched.until(name)

    asyncio.run(story())


def test_a_node_that_joined_again_owns_what_is_written(api: FakeApi, connect: Callable[[], AsyncClient]) -> None:
    def owner(name: str) -> str:
        return str(api.objects[f"{SLICES}/{name}"]["metadata"]["ownerReferences"][0]["uid"])

    async def story() -> None:
        server = ApiServer(connect, NODE)
        spec = {"driver": "gpu.vgpu.dev", "nodeName": NODE, "pool": {"name": NODE, "generation": 7}}
        ((name, generation),) = (await server.publish(Changes((Write("", 0, spec),)))).written_generations
        assert (owner(name), generation) == (api.objects[f"/api/v1/nodes/{NODE}"]["metadata"]["uid"], 7)
        api.remove(f"/api/v1/nodes/{NODE}")
        api.add_node(NODE)
        await server.publish(Changes((Write(name, 0, spec),)))
        assert owner(name) == api.objects[f"/api/v1/nodes/{NODE}"]["metadata"]["uid"]
        await server.close()

    asyncio.run(story())
