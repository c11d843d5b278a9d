"""The scripts of integrations/slurm by themselves, with stand-ins for scontrol, the helper and enroot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemon.node import wait_until

ROOT = Path(__file__).resolve().parents[2] / "integrations" / "slurm"
SCRIPTS = sorted([*ROOT.glob("*.sh"), *ROOT.glob("enroot/*.sh")])
#: what the helper answers
VARIABLES = "LD_PRELOAD=/c/libvgpu.so:/c/libvgpu-ml.so\nVGPU_SOCKET=/run/s\nCUDA_VISIBLE_DEVICES=0\n"


class Site:
    """A folder with stand-ins for the programs that the scripts call; each notes its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copytree(ROOT, folder / "scripts")
        settings = f"HELPER={self.bin}/helper\nSTATE={self.state}\n"
        (folder / "scripts" / "scripts.conf").write_text(settings)
        self.env = {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        self.env |= {"SLURM_JOB_ID": "12", "SLURM_JOB_UID": "1000", "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0"}
        self.program("helper", f"printf '%s' '{VARIABLES}'")
        self.says("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:600(IDX:0)")

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >>"{self.folder}/{name}.calls"\n{body}\n')
        path.chmod(0o755)

    def says(self, *lines: str) -> None:
        """What `scontrol show job -d` prints."""
        text = "\n".join(["JobId=12 JobName=x", *(f"     {line}" for line in lines)])
        self.program("scontrol", f"[ $2 = hostnames ] && printf 'n0\\nn1\\n' && exit\ncat <<'END'\n{text}\nEND")

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, script: str, *arguments: str, status: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(self.folder / "scripts" / script), *arguments]
        done = subprocess.run(command, env=self.env | env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, "of Prolog and Epilog another status than 0 would drain the node"
        return done


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_syntax(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-s", "bash", script], check=True)


def test_a_job_from_prolog_to_epilog(site: Site) -> None:
    site.run("prolog.sh")
    assert site.calls("helper") == ["vgpu-slurm begin job=12 uid=1000 gpus=0 shards=600"]
    task = site.run("task_prolog.sh", LD_PRELOAD="/sim/SIMULATED/libcudart.so.13:/x/libother.so")
    assert task.stdout.splitlines() == [
        "export LD_PRELOAD=/c/libvgpu.so:/c/libvgpu-ml.so:/x/libother.so",
        "export VGPU_SOCKET=/run/s",
        "export CUDA_VISIBLE_DEVICES=0",
    ]
    site.program("helper", "printf 'slice=slurm-12\\nused_ms=3204\\n'")
    site.run("epilog.sh")
    assert site.calls("helper")[-1] == "vgpu-slurm end job=12"
    assert not list(site.state.iterdir())


def test_a_job_without_a_gpu_costs_nothing(site: Site) -> None:
    site.env["SLURM_JOB_GPUS"] = ""
    site.run("prolog.sh")
    assert site.run("task_prolog.sh").stdout == "" and site.run("epilog.sh").stdout == ""
    assert site.calls("helper") == site.calls("scontrol") == []


@pytest.mark.parametrize(
    ("lines", "shards"),
    [
        (("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:tesla:250(IDX:1)",), "250"),
        (("Nodes=n0 CPU_IDs=0 Mem=0 GRES=shard:100(IDX:0)", "Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:700(IDX:0)"), "700"),
        (("Nodes=n[0-1] CPU_IDs=0 Mem=0 GRES=shard:400(IDX:0)",), "400"),
        (("Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)",), ""),
    ],
)
def test_shards_of_this_node(site: Site, lines: tuple[str, ...], shards: str) -> None:
    site.says(*lines)
    site.run("prolog.sh")
    assert site.calls("helper") == [f"vgpu-slurm begin job=12 uid=1000 gpus=0 shards={shards}"]


def test_vgpud_is_away(site: Site) -> None:
    """The node stays up; the task ends, and its user reads why."""
    site.program("helper", "echo 'vgpud is not running' >&2; exit 1")
    site.run("prolog.sh")
    assert site.run("task_prolog.sh", status=1).stdout == "print vgpu: vgpud is not running\n"
    site.run("epilog.sh")
    assert [path.name for path in site.state.iterdir()] == ["12.left"], "it may have a slice: the answer was lost"


def test_slurmctld_is_away(site: Site) -> None:
    """How many shards the job has is then not known: a whole device would be wrong."""
    site.program("scontrol", "exit 1")
    site.run("prolog.sh")
    assert site.calls("helper") == []
    assert "slurmctld did not say" in site.run("task_prolog.sh", status=1).stdout


def test_shards_that_are_not_understood(site: Site) -> None:
    site.says("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard(IDX:0)")
    site.run("prolog.sh")
    assert site.calls("helper") == []


@pytest.mark.parametrize(
    ("name", "lines", "shards"),
    [
        ("x Nodes=n1 GRES=shard:1000(IDX:0)", ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0)",), "1"),
        ("x", ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0)", "Comment=a Nodes=n1 GRES=shard:1000"), "1"),
        ("x", ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:8(IDX:0)", "Comment=a Nodes=n1 GRES=shard:00010"), "8"),
        ("x", ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0)", "Comment=a Nodes=n1 GRES=gpu:1"), "1"),
        ("shards", ("Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)",), ""),
    ],
)
def test_a_jobs_name_and_comment_give_it_no_more(site: Site, name: str, lines: tuple[str, ...], shards: str) -> None:
    """They are its user's words, in the same text as what Slurm has given the job."""
    site.says(f"JobName={name}", *lines)
    site.run("prolog.sh")
    assert site.calls("helper") == [f"vgpu-slurm begin job=12 uid=1000 gpus=0 shards={shards}"]


@pytest.mark.parametrize(
    ("comment", "calls", "shards"),
    [
        (" ".join(f"Nodes=m[{i}-{i + 1}] GRES=shard:900" for i in range(900)), 1, "250"),
        (" ".join("Nodes=n[0-1] GRES=shard:900" for _ in range(20_000)), 1, "250"),
        (" ".join("Nodes=m[0-1] GRES=shard:900" for _ in range(20_000)), 0, "250"),
        (" ".join(f"Nodes=m[0-1] GRES=shard:{i}" for i in range(1, 50)), 49, "250"),
        (" ".join(f"Nodes=m[{i}-{i + 1}] GRES=shard:900" for i in range(20_000)), 0, None),
        ("Nodes=bad[9-1] GRES=shard:1", 1, None),
    ],
    ids=["lists", "same", "others", "counts", "many", "bad"],
)
def test_a_comment_holds_prolog_up_for_no_longer_than_others(
    site: Site, comment: str, calls: int, shards: str | None
) -> None:
    """It is as long as its user likes, and each list of nodes in it was a question to Slurm."""
    text = f"JobId=12 Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:250(IDX:0) Comment=a {comment}"
    (site.folder / "job").write_text(text)
    names = "case $3 in *bad*) exit 1 ;; *n\\[0*) echo n1 ;; *) echo m1 ;; esac"
    site.program("scontrol", f"[ $2 = hostnames ] || exec cat {site.folder}/job\n{names}")
    site.run("prolog.sh")
    asked = [call for call in site.calls("scontrol") if "hostnames" in call]
    assert len(asked) <= calls
    begun = [f"vgpu-slurm begin job=12 uid=1000 gpus=0 shards={shards}"] if shards else []
    assert site.calls("helper") == begun


@pytest.mark.parametrize("lie", ["--help[0-1]", "-h,", "x[1,", "x]", "n1,[", "a;b,c"])
def test_no_list_of_nodes_in_a_name_hides_what_the_job_has(site: Site, lie: str) -> None:
    """Lists with the same number of shards are asked about together."""
    lies = f"Nodes={lie} GRES=shard:250 Nodes=n1 GRES=shard:1000"
    (site.folder / "job").write_text(f"JobId=12 JobName=a {lies} Nodes=n[0-1] CPU_IDs=0 GRES=shard:250(IDX:0)")
    names = "case $3 in -*) exit 0 ;; n\\[0-1]) printf 'n0\\nn1\\n' ;; *) echo invalid; exit 0 ;; esac"
    site.program("scontrol", f"[ $2 = hostnames ] || exec cat {site.folder}/job\n{names}")
    site.run("prolog.sh")
    assert site.calls("helper") == ["vgpu-slurm begin job=12 uid=1000 gpus=0 shards=250"]


def test_a_job_whose_prolog_left_nothing_ends(site: Site) -> None:
    """A folder that cannot be written, a Prolog that was never run: the task would have the whole device."""
    site.state.write_text("no folder")
    site.run("prolog.sh")
    assert site.calls("helper") == []
    assert "no slice for job 12" in site.run("task_prolog.sh", status=1, ENVIRONMENT="BATCH").stdout
    step = {"SLURM_JOB_GPUS": "", "SLURM_STEP_GPUS": "0"}
    assert "no slice" in site.run("task_prolog.sh", status=1, **step).stdout
    site.run("task_prolog.sh", ENVIRONMENT="BATCH", **step)  # submitted from a step that had a GPU
    site.run("epilog.sh")


def test_a_prolog_that_is_ended(site: Site) -> None:
    """By PrologTimeout: what it has begun is known to TaskProlog and to Epilog."""
    site.program("helper", "read -r _ _ _ prolog _ </proc/$PPID/stat; kill -KILL $prolog $PPID")
    site.run("prolog.sh", status=-9)
    assert "Prolog was ended" in site.run("task_prolog.sh", status=1).stdout
    site.program("helper", "")
    site.run("epilog.sh")
    assert site.calls("helper")[-1] == "vgpu-slurm end job=12" and not list(site.state.iterdir())


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_slices_are_ended_once_vgpud_is_back(site: Site, script: str) -> None:
    """It may restart just while a job ends: nothing else would ever end that job's slice."""
    site.run("prolog.sh")
    site.program("helper", "echo 'vgpud is not running' >&2; exit 1")
    site.run("epilog.sh")
    assert [path.name for path in site.state.iterdir()] == ["12.left"]
    site.program("helper", f"printf '%s' '{VARIABLES}'")
    site.run(script, SLURM_JOB_ID="13")
    ended = [call for call in site.calls("helper") if " end " in call]
    assert ended == ["vgpu-slurm end job=12"] * 2
    assert not (site.state / "12.left").exists()


@pytest.mark.parametrize("nodes", [1, 2])
def test_comment(site: Site, nodes: int) -> None:
    """On several nodes it is written again if another node has overwritten it."""
    kept = site.folder / "kept"
    kept.write_text("by hand")
    update = "${3#AdminComment=}"
    update = f'echo "{update}" >{kept}' if nodes == 1 else f"[ -e {kept}.1 ] && echo {update} >{kept}; touch {kept}.1"
    site.program("scontrol", update)
    shown = f"echo '11 {nodes} of another job of the array'; echo \"12          {nodes}       $(cat {kept})   \""
    site.program("squeue", shown)
    site.run("comment.sh", "12", "slice=slurm-12.0 used_ms=3204")
    added = "update JobId=12 AdminComment=by hand; vgpu n1 slurm-12.0 3.204 GPU-s"
    wait_until(lambda: [call for call in site.calls("scontrol") if call.startswith("update")] == [added] * nodes, added)


@pytest.mark.parametrize("arguments", [(), ("12",), ("x", "slice=a used_ms=1"), ("12", "slice=a used_ms=-1")])
def test_comment_of_nothing(site: Site, arguments: tuple[str, ...]) -> None:
    site.run("comment.sh", *arguments)
    assert site.calls("scontrol") == []


@pytest.mark.parametrize(
    ("script", "slurm_command"),
    [
        ("prolog.sh", "scontrol"),
        ("comment.sh 12 'slice=slurm-12.0 used_ms=3'", "squeue"),
        ("release_if_stale.sh gpu /", "squeue"),
    ],
)
def test_slurm_under_a_prefix(site: Site, script: str, slurm_command: str) -> None:
    """Its daemons run scripts without a PATH that leads to it: they ask the same Slurm, whichever others there are."""
    slurm = site.folder / "slurm"
    (slurm / "sbin").mkdir(parents=True)
    shutil.copy2("/bin/bash", slurm / "sbin" / "slurmd")
    site.program("squeue", "")
    site.bin.rename(slurm / "bin")
    env = {name: value for name, value in site.env.items() if name != "PATH"}
    command = [slurm / "sbin" / "slurmd", "-c", f"{site.folder}/scripts/{script}; exit"]
    subprocess.run(command, env=env, timeout=60, check=True)
    assert site.calls(slurm_command) != []


def test_the_hook_of_enroot(site: Site) -> None:
    """Against the two files that enroot's hooks append to; never tried in a real enroot."""
    lists = {"ENROOT_MOUNTS": site.folder / "fstab", "ENROOT_ENVIRON": site.folder / "environ"}
    shim, runtime = site.folder / "libvgpu-1.so", site.folder / "SIMULATED" / "libcudart.so.13"
    runtime.parent.mkdir()
    for path in (*lists.values(), shim, runtime, site.folder / "attach.sock"):
        path.touch()
    env = {name: str(path) for name, path in lists.items()}
    slice_of = {"VGPU_SOCKET": f"{site.folder}/attach.sock", "CUDA_VISIBLE_DEVICES": "0", "VGPU_MODE": "coast"}
    site.run("enroot/99-vgpu.sh", **env)
    assert lists["ENROOT_MOUNTS"].read_text() == lists["ENROOT_ENVIRON"].read_text() == "", "a step without a slice"
    site.run("enroot/99-vgpu.sh", **env, **slice_of, LD_PRELOAD=f"{shim}:{runtime}:/x/libother.so")
    mounts = [line.split()[:2] for line in lists["ENROOT_MOUNTS"].read_text().splitlines()]
    assert mounts == [[str(site.folder)] * 2, [str(shim)] * 2, [str(runtime)] * 2]
    environ = lists["ENROOT_ENVIRON"].read_text().splitlines()
    assert f"LD_PRELOAD={shim}:{runtime}" in environ and "CUDA_VISIBLE_DEVICES=0" in environ


@pytest.fixture
def memory_site(site: Site) -> Site:
    """A node of two GPUs, the smaller one of 40 GiB."""
    devices = [{"index": 0, "mem_total_bytes": 80 << 30}, {"index": 1, "mem_total_bytes": 40 << 30}]
    site.program("vgpu", f"cat <<'END'\n{json.dumps({'devices': devices}, indent=2)}\nEND")
    site.program("scontrol", "")
    return site


@pytest.mark.parametrize(
    ("old_comment", "new_comment"),
    [
        ("(null)", "vgpu memory=42949672960"),
        ("", "vgpu memory=42949672960"),
        ("vgpu memory=1", "vgpu memory=42949672960"),
        ("vgpu memory=1 rack 7", "vgpu memory=42949672960 rack 7"),
        ("vgpu memory=1 rack 7, \xe4\nrow 3", "vgpu memory=42949672960 rack 7, \xe4\nrow 3"),
        ("rack 7", None),
    ],
)
def test_a_nodes_memory_is_published(memory_site: Site, old_comment: str, new_comment: str | None) -> None:
    """In its comment, unless the site has one of its own there."""
    memory_site.program("sinfo", f"LC_ALL=C printf '%-1024s\\n%-1024s\\n' '{old_comment}' '{old_comment}'")
    done = memory_site.run("publish_memory.sh", status=0 if new_comment else 1)
    said = "\n".join(memory_site.calls("scontrol"))
    assert said == (f"update NodeName=n1 Comment={new_comment}" if new_comment else "")
    assert bool(new_comment) != ('begin it with "vgpu memory=42949672960"' in done.stderr)


@pytest.mark.parametrize("answer", ["exit 1", "echo rack 7; exit 1", "true"])
def test_a_comment_that_slurm_does_not_show_stays(memory_site: Site, answer: str) -> None:
    """It may be the site's own: no answer is no empty comment."""
    memory_site.program("sinfo", answer)
    assert "sinfo does not say" in memory_site.run("publish_memory.sh", status=1).stderr
    assert memory_site.calls("scontrol") == []


def test_memory_is_published_beside_vgpud_not_by_it(memory_site: Site) -> None:
    """A slurmctld that does not answer must not keep vgpud from starting, nor the script from ending: each program
    has its time."""
    memory_site.program("sinfo", "printf '%-1024s\\n' '(null)'")
    memory_site.program("timeout", 'shift; exec "$@"')
    memory_site.run("publish_memory.sh")
    assert [call.split()[:2] for call in memory_site.calls("timeout")] == [["10", "sinfo"], ["10", "scontrol"]]
    unit = (ROOT / "vgpu-publish-memory.service").read_text()
    assert "Type=oneshot\n" in unit and "\nAfter=vgpud.service" in unit and "WantedBy=vgpud.service\n" in unit
    assert "ExecStart=/usr/lib/vgpu/slurm/publish_memory.sh\n" in unit
    assert "LIBDIR ?= /usr/lib/vgpu/slurm\n" in (ROOT / "Makefile").read_text()


def test_no_memory_is_published_without_vgpud(site: Site) -> None:
    site.program("vgpu", "echo 'no daemon' >&2; exit 3")
    site.program("scontrol", "")
    assert "vgpu gpu ls" in site.run("publish_memory.sh", status=1).stderr and site.calls("scontrol") == []
