"""What job_submit.lua and vgpu_cluster.lua answer, by the library of Lua that Slurm's plugin loads: requests as each
release of Slurm writes them."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import pytest

from tests.mandatory import unavailable
from vgpud.cluster.shell import published

ROOT = Path(__file__).resolve().parents[2] / "integrations" / "slurm"
LIBRARIES = ("liblua5.1.so.0", "liblua5.3.so.0", "liblua5.4.so.0")
#: what slurmctld gives to scripts
SLURM = """
slurm = {SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294}
said = ""
function slurm.log_user(...) said = string.format(...) end
"""


def _library() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


@pytest.fixture(scope="module")
def lua() -> ctypes.CDLL:
    library = _library()
    if library is None:
        unavailable(f"none of {', '.join(LIBRARIES)} (Debian: slurm-wlm-basic-plugins depends on one)")
    library.luaL_newstate.restype = ctypes.c_void_p
    library.lua_tolstring.restype = ctypes.c_char_p
    return library


def run(lua: ctypes.CDLL, chunk: str) -> str:
    """What it returns, or its error."""
    state = ctypes.c_void_p(lua.luaL_newstate())
    try:
        lua.luaL_openlibs(state)
        if not lua.luaL_loadstring(state, chunk.encode()):
            if hasattr(lua, "lua_pcall"):  # of 5.1
                lua.lua_pcall(state, 0, 1, 0)
            else:
                lua.lua_pcallk(state, 0, 1, 0, ctypes.c_void_p(), None)
        return bytes(lua.lua_tolstring(state, -1, None) or b"").decode()
    finally:
        lua.lua_close(state)


def submit(lua: ctypes.CDLL, script: Path, job: str) -> str:
    """ "CODE PRIORITY TRES_PER_NODE SENTENCE" of a job with these fields."""
    answer = '.. (job.priority or "") .. " " .. (job.tres_per_node or "") .. " " .. said'
    call = f'dofile("{script}") job = {{{job}}} return slurm_job_submit(job, {{}}, 1000) .. " " {answer}'
    return run(lua, SLURM + call)


@pytest.fixture
def cluster_script(tmp_path: Path) -> Path:
    """While a controller decides."""
    heartbeat, script = tmp_path / "heartbeat", tmp_path / "vgpu_cluster.lua"
    heartbeat.write_text(str(published.now_s()))
    text = (ROOT / "vgpu_cluster.lua").read_text()
    script.write_text(text.replace("/run/vgpud/cluster/heartbeat", str(heartbeat)))
    return script


NODES = 'partition = "gpu", min_nodes = 1, max_nodes = 1, '


@pytest.mark.parametrize("fields", ["", 'tres_per_task = "cpu=2"', 'tres_per_task = "cpu:2"', 'tres_per_task = ""'])
def test_jobs_that_the_queue_takes(lua: ctypes.CDLL, cluster_script: Path, fields: str) -> None:
    """--cpus-per-task is in tres_per_task as well from 23.11 on."""
    said = submit(lua, cluster_script, f'{NODES} tres_per_node = "gres/gpu:1", {fields}')
    assert said == "0 0 gres/gpu:1 "


@pytest.mark.parametrize(
    "fields",
    [
        'tres_per_task = "gres:gpu:1"',
        'tres_per_task = "gres/gpu:1"',
        'tres_per_task = "cpu=2,gres/gpu=1"',
        'tres_per_job = "gres/gpu:4"',
        'tres_per_socket = "gres:gpu:1"',
    ],
)
def test_gpus_that_are_not_of_each_node(lua: ctypes.CDLL, cluster_script: Path, fields: str) -> None:
    said = submit(lua, cluster_script, NODES + fields)
    assert said.startswith("-1 ") and "ask for GPUs of each node" in said


@pytest.mark.parametrize("prefix", ["gres:", "gres/"])
@pytest.mark.parametrize(
    ("gres", "result"),
    [("gpu:1", "shard:1000"), ("gpu", "shard:1000"), ("gpu:a100:1", "shard:a100:1000"), ("gpu:2", "gpu:2")],
)
def test_one_whole_gpu_of_a_batch_job(lua: ctypes.CDLL, prefix: str, gres: str, result: str) -> None:
    said = submit(lua, ROOT / "job_submit.lua", f'script = "#!/bin/sh", tres_per_node = "{prefix}{gres}"')
    assert said == f"0  {prefix}{result} "


@pytest.mark.parametrize("gres", ["gres:shard:1500", "gres/shard:1500", "gres/shard:tesla:1001", "gres/shard=1500"])
def test_shards_of_several_gpus(lua: ctypes.CDLL, gres: str) -> None:
    said = submit(lua, ROOT / "job_submit.lua", f'tres_per_node = "{gres}"')
    assert said.startswith("-1 ") and "ask for --gres=gpu:2" in said
