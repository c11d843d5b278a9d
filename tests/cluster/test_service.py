"""The controller's process over programs that stand in for Slurm's: what it saves, publishes, refuses, and lets go."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cluster.system import System
from vgpud.cli.main import cli
from vgpud.cluster import service
from vgpud.cluster.core import controller, job_step
from vgpud.cluster.core.model import Order, SlurmJob
from vgpud.cluster.shell import published
from vgpud.cluster.shell.slurm import Slurm, SlurmError
from vgpud.core.jobs.model import QueueSpec
from vgpud.errors import ConfigError, ConflictError, StoreError
from vgpud.simulate import readers, replay
from vgpud.store import cluster as store
from vgpud.store.cluster import ClusterStore

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "integrations/slurm/release_if_stale.sh"


def test_jobs_run_and_are_shown(system: System) -> None:
    one = system.service()
    half, whole, wide = system.submit("shard:500"), system.submit("gpu:1"), system.submit("gpu:2")
    one.look()
    jobs = system.slurm().jobs
    assert (jobs[half].state, jobs[whole].state, jobs[wide].state) == ("RUNNING", "RUNNING", "PENDING")
    one.look()
    listed = system.vgpu("ls", "--run-dir", str(system.options.run))
    assert "n1" in listed and "pending" in listed
    said = system.vgpu("explain", wide, "--run-dir", str(system.options.run))
    assert "is pending" in said and "position 1" in said
    system.end(half)
    one.look()
    one.close()
    assert not published.fresh(system.options.run, published.now_s())

    trace = system.vgpu("usage", "-o", "csv", "--state-dir", str(system.options.state))
    (row,) = csv.DictReader(trace.splitlines())
    assert (row["slurm_id"], row["gpus_milli"], row["state"]) == (half, "500", "completed")
    path = system.folder / "trace.csv"
    path.write_text(trace)
    assert readers.read(path)[0].spec.ask.spec.gpus_milli == 500
    recorded = replay.read(system.folder / "record")
    assert recorded.steps and list(replay.same_commands(recorded)) == []


def test_the_next_controller_continues(system: System) -> None:
    one = system.service()
    runs, waits = system.submit("gpu:2"), system.submit("gpu:2")
    one.look()
    one.close()  # as after kill: nothing of it is in memory
    two = system.service()
    two.look()
    assert {job.spec.name: job.attempt for job in two.controller.machine.jobs.values()} == {runs: 1, waits: 0}
    system.end(runs)
    two.look()
    assert system.slurm().jobs[waits].state == "RUNNING"
    two.close()
    recorded = replay.read(system.folder / "record")
    assert len(recorded.jobs) == 2 and recorded.restored_ns > 0
    assert list(replay.same_commands(recorded)) == []


@pytest.mark.parametrize("shared", ["state", "run"])
def test_a_second_controller_is_refused(system: System, shared: str) -> None:
    one = system.service()
    other = "run" if shared == "state" else "state"
    options = replace(system.options, **{other: system.folder / "other"})
    with pytest.raises(ConflictError, match=f"pid {os.getpid()}.*--{shared}-dir"):
        service.Service(options, Slurm("gpu"))
    one.close()
    service.Service(system.options, Slurm("gpu")).close()


def test_slurmctld_is_away(system: System, caplog: pytest.LogCaptureFixture) -> None:
    one = system.service()
    job = system.submit("gpu:1")
    one.look()
    away = system.state.parent / "slurmctld-is-away"
    away.touch()
    for _ in range(2):
        one.look()
    assert len([r for r in caplog.records if "Unable to contact" in r.message]) == 1
    away.unlink()
    one.look()
    assert [found.state.value for found in one.controller.machine.jobs.values()] == ["running"]
    assert system.slurm().jobs[job].starts == 1
    one.close()


def test_an_order_that_is_refused_does_no_harm(system: System, caplog: pytest.LogCaptureFixture) -> None:
    one = system.service()
    job = system.submit("gpu:1")
    (system.folder / "bin/scontrol").write_text("#!/bin/sh\necho 'slurm_update error: Access denied' >&2\nexit 1\n")
    one.look()
    assert any("Access denied" in r.message for r in caplog.records)
    assert system.slurm().jobs[job].state == "PENDING"
    one.close()


def test_many_orders_are_no_reason_to_take_the_controller_for_gone(
    quick_system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm takes half a minute for each; what is left when the controller is stopped, the next one gives."""
    one = quick_system.service()
    now_s, call_count = [published.now_s()], 0
    monkeypatch.setattr(published, "now_s", lambda: now_s[0])
    tell = Slurm.tell

    def tell_slowly(slurm: Slurm, order: Order) -> None:
        nonlocal call_count
        assert published.fresh(quick_system.options.run, now_s[0])
        call_count += 1
        now_s[0] += 30
        tell(slurm, order)
        if call_count == 4:
            one.stop()

    monkeypatch.setattr(Slurm, "tell", tell_slowly)
    for _ in range(6):
        quick_system.submit("gpu:3", held=False)
    one.look()
    assert call_count == 4
    one.close()


@pytest.mark.parametrize("text", ["name", "comment"])
def test_a_job_that_is_not_the_queues_takes_no_devices_by_its_texts(quick_system: System, text: str) -> None:
    """Where nodes show no amounts, as those of 22.05, what it has is in one line with what its user wrote."""
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)  Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    quick_system.change(lambda slurm: setattr(slurm, "old", True))
    other = quick_system.submit("shard:100", held=False, **{text: lie})
    quick_system.change(lambda slurm: setattr(slurm.jobs[other], "bound_to", ("n1",)))
    quick_system.change(lambda slurm: slurm.schedule())
    one = quick_system.service()
    keys = [quick_system.submit("gpu:1") for _ in range(3)]
    for _ in range(3):
        one.look()
    jobs = quick_system.slurm().jobs
    assert [jobs[key].state for key in keys] == ["RUNNING", "RUNNING", "PENDING"]
    (waits,) = [job for job in one.controller.machine.jobs.values() if job.spec.name == keys[2]]
    assert one.controller.machine.reason(waits.job_id, 10**18).endswith("device 1 of n1 has the most free: 0.9 GPU")
    one.close()


@pytest.mark.parametrize("forged_row", ["{waits}", "x", "{waits}".ljust(40) + "COMPLETED"])
def test_a_line_break_in_an_account_is_one_jobs_matter(quick_system: System, forged_row: str) -> None:
    """As squeue shows it: another job's number behind it is no row of that job."""
    one = quick_system.service()
    waits = quick_system.submit("gpu:1", uid=2000)
    hostile = quick_system.submit("gpu:1", account="team\n" + forged_row.format(waits=waits))
    for _ in range(2):
        one.look()
        assert published.fresh(quick_system.options.run, published.now_s())
    jobs = {job.spec.name: job for job in one.controller.machine.jobs.values()}
    assert {name: (job.spec.uid, job.state.value) for name, job in jobs.items()} == {
        waits: (2000, "running"),
        hostile: (1000, "running"),
    }
    one.close()


def test_a_job_that_cannot_be_looked_at(
    quick_system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: it is refused or stays as it is, the log says so once, and other jobs run."""
    spec_of = controller.spec_of

    def failing(job: SlurmJob, *rest: object) -> object:
        if job.request.comment == "hostile":
            raise KeyError(job.key)
        return spec_of(job, *rest)  # type: ignore[arg-type]

    for module in (controller, job_step):
        monkeypatch.setattr(module, "spec_of", failing)
    one = quick_system.service()
    hostile, runs, waits = (quick_system.submit(gres) for gres in ("gpu:1", "gpu:2", "gpu:2"))
    quick_system.change(lambda slurm: setattr(slurm.jobs[hostile], "comment", "hostile"))
    one.look()
    quick_system.change(lambda slurm: setattr(slurm.jobs[waits], "comment", "hostile"))
    for _ in range(3):
        one.look()
    assert quick_system.slurm().jobs[runs].state == "RUNNING"
    assert "cannot read it" in one.controller.refusal_reasons[hostile] and waits in one.controller.bindings
    logged = [record.getMessage() for record in caplog.records if record.exc_info]
    assert [words.split()[1] for words in logged] == [hostile, waits]
    quick_system.end(runs)
    for _ in range(2):
        one.look()
    assert quick_system.slurm().jobs[waits].state == "RUNNING", "it is queued as it was"
    one.close()


def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="slurm-client"):
        Slurm("gpu").look()


@pytest.mark.parametrize(
    ("fields", "words"), [({"guarantee_milli": 2, "limit_milli": 1}, "limit"), ({"policy": "fastest"}, "fifo")]
)
def test_queues_that_cannot_be(system: System, fields: dict[str, object], words: str) -> None:
    wrong = replace(system.options, queues=(QueueSpec("default", **fields),))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        service.Service(wrong, Slurm("gpu"))


def test_a_guarantee_needs_no_nodes_yet(system: System) -> None:
    """What there is, is known with the first look."""
    options = replace(system.options, queues=(QueueSpec("default", guarantee_milli=4000),))
    service.Service(options, Slurm("gpu")).close()


# ---- Slurm's own order continues ----


def run_release_script(system: System, *arguments: str) -> list[str]:
    subprocess.run(["sh", str(SCRIPT), *arguments], check=True, timeout=60)
    return [job.key for job in system.slurm().jobs.values() if job.priority]


def test_held_jobs_are_released_when_the_controller_has_gone(system: System) -> None:
    ours, own = system.submit("gpu:2"), system.submit("gpu:1", user_hold=True)
    heartbeat = system.folder / "heartbeat"
    heartbeat.write_text(f"{published.now_s()}\n")
    assert run_release_script(system, "gpu", str(heartbeat)) == []
    heartbeat.write_text(f"{published.now_s() - 121}\n")
    assert run_release_script(system, "gpu", str(heartbeat)) == [ours]
    assert system.slurm().jobs[ours].state == "RUNNING" and system.slurm().jobs[own].state == "PENDING"


@pytest.mark.parametrize("text", [None, "", "later", "-5"])
def test_no_heartbeat_is_an_old_one(system: System, text: str | None) -> None:
    job = system.submit("gpu:1")
    heartbeat = system.folder / "heartbeat"
    if text is not None:
        heartbeat.write_text(text)
    assert run_release_script(system, "gpu", str(heartbeat)) == [job]


def test_the_heartbeat_says_until_when(tmp_path: Path) -> None:
    assert not published.fresh(tmp_path, 100)
    published.beat(tmp_path, 100)
    assert published.fresh(tmp_path, 100 + published.FRESH_S)
    assert not published.fresh(tmp_path, 101 + published.FRESH_S)
    published.stop(tmp_path)
    assert not published.fresh(tmp_path, 100)


def test_the_script_in_slurmctld_has_the_same_files_and_times() -> None:
    lua = (ROOT / "integrations/slurm/vgpu_cluster.lua").read_text()
    assert f"local FRESH_S = {published.FRESH_S}\n" in lua
    assert f'"/run/vgpud/cluster/{published.HEARTBEAT}"' in lua
    assert f"/run/vgpud/cluster/{published.HEARTBEAT}" in SCRIPT.read_text()


# ---- the command ----


def test_no_controller_has_published_anything(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["cluster", "ls", "--run-dir", str(tmp_path)])
    assert "vgpu cluster run" in str(done.exception)
    for text in ("[]", "{}", "{"):
        (tmp_path / published.STATUS).write_text(text)
        with pytest.raises(published.NoControllerError):
            published.read(tmp_path)


def test_no_text_of_a_job_moves_the_cursor(system: System) -> None:
    one = system.service()
    job = system.submit("gpu:1")
    one.look()
    one.close()
    path = system.options.run / published.STATUS
    path.write_text(path.read_text().replace('"default"', '"\\u001b[31m"'))
    for words in (("ls",), ("explain", job)):
        said = system.vgpu(*words, "--run-dir", str(system.options.run))
        assert "\x1b" not in said and "[31m" in said


def test_a_job_that_is_not_the_queues(system: System) -> None:
    one = system.service()
    refused = system.submit("gpu:9")
    one.look()
    one.close()
    run = str(system.options.run)
    assert "is not queued" in system.vgpu("explain", refused, "--run-dir", run)
    done = CliRunner().invoke(cli, ["cluster", "explain", "77", "--run-dir", run], standalone_mode=False)
    assert "no job 77" in str(done.exception)


def test_queues_are_shown(system: System) -> None:
    one = system.service()
    system.submit("gpu:2")
    system.submit("gpu:2")
    one.look()
    one.close()
    shown = json.loads(system.vgpu("queues", "-o", "json", "--run-dir", str(system.options.run)))["queues"]
    assert [(q["name"], q["used_milli"], q["running"], q["waiting"]) for q in shown] == [("default", 2000, 1, 1)]
    assert "default" in system.vgpu("queues", "--run-dir", str(system.options.run))


def test_a_job_as_a_command_line(system: System) -> None:
    said = system.vgpu("submit", "--partition", "gpu", "--dry-run", "--gpus", "0.5", "--expect", "2h", "--", "a b", "c")
    assert (
        said
        == "sbatch --parsable --partition=gpu --gres=shard:500 '--job-name=a b' '--comment=vgpu duration=2h' <<'END'\n"
        + ("#!/bin/sh\nexec 'a b' c\nEND\n")
    )
    wide = ("--gpus", "8", "--gpu-model", "a100", "--nodes", "4", "--queue", "team", "--after", "7", "--array", "0-3")
    said = system.vgpu("submit", "--partition", "gpu", "--dry-run", *wide, "--", "./train")
    assert "--gres=gpu:a100:8 --nodes=4 --ntasks-per-node=1 --account=team --array=0-3 --dependency=afterok:7" in said
    assert "exec srun ./train" in said


@pytest.mark.parametrize(("words", "why"), [(("--gpus", "2.5"), "2 or 3"), (("--model", "a b"), "one word")])
def test_what_slurm_cannot_be_asked_for(words: tuple[str, ...], why: str) -> None:
    given = ["cluster", "submit", "--partition", "gpu", *words, "--", "x"]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 2 and why in done.output


# ---- the database ----


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    made = ClusterStore(tmp_path)
    made._db.execute("PRAGMA user_version = 99")
    made.close()
    with pytest.raises(StoreError, match="newer vgpu"):
        ClusterStore(tmp_path)


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--state-dir"):
        store.usage(tmp_path, 0)
    (tmp_path / store.FILE_NAME).write_text("no database at all, whatever its name says" * 100)
    for call in (lambda: ClusterStore(tmp_path), lambda: store.usage(tmp_path, 0)):
        with pytest.raises(StoreError):
            call()


def test_histories_outlive_a_controller(tmp_path: Path) -> None:
    made = ClusterStore(tmp_path)
    made.save_history({"team": 1 << 40}, 5)
    made.close()
    kept = ClusterStore(tmp_path).load()
    assert (kept.histories, kept.history_at_ns, kept.latest_ns) == ({"team": 1 << 40}, 5, 5)


def test_what_orders_have_learnt_outlives_a_controller(tmp_path: Path) -> None:
    """A damaged row is left out: that queue learns again."""
    made = ClusterStore(tmp_path)
    known = {"policy": "2d-gittins", "all": {"costs": [1 << 90]}}
    made.save([], {}, [], 1, {"team": known, "other": known, "gone": known}, 5)
    made.save([], {}, [], 1, {"gone": None}, 6)
    made._db.execute("UPDATE queue_orders SET body = replace(body, 'costs', 'coasts') WHERE queue = 'other'")
    made.close()
    assert ClusterStore(tmp_path).load().orders == {"team": known}
