"""The commands of one node with --cluster: the same over the queue of the cluster, and what makes no sense there."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

import pytest

from tests.cluster.system import System, invoke
from vgpud.cli.jobs.submit import submit
from vgpud.cli.jobs.submit_cluster import INSTEAD, ONLY
from vgpud.cli.main import invoke as invoke_vgpu
from vgpud.cluster import service
from vgpud.cluster.service import with_slurms_numbers
from vgpud.errors import ExitCode, VgpudError
from vgpud.store import cluster as store
from vgpud.view.user_names import find_user_name


@pytest.fixture
def system(quick_system: System) -> System:
    return quick_system


def refusal(*words: str) -> str:
    """Of a command line that is wrong, in one line."""
    done = invoke(words)
    assert done.exit_code == ExitCode.USAGE, (done.output, done.exception)
    return " ".join(done.output.split())


# ---- submit ----


def dry_run(*words: str) -> str:
    done = invoke(["submit", "--cluster", "--partition", "gpu", "--dry-run", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_a_job_as_the_command_line_of_sbatch() -> None:
    assert dry_run("--gpus", "0.5", "--", "a b", "c") == (
        "sbatch --parsable --partition=gpu --gres=shard:500 '--job-name=a b' <<'END'\n#!/bin/sh\nexec 'a b' c\nEND\n"
    )


@pytest.mark.parametrize(
    ("options", "sbatch_options"),
    [
        ("--gpus 8 --gang 4 --gpu-model a100", "--gres=gpu:a100:8 --nodes=4 --ntasks-per-node=1"),
        ("--queue team --name x --time-limit 1d2h", "--account=team --job-name=x --time=1-02:00:00"),
        ("--array 0-3,7%2", "--array=0-3,7%2"),
        ("--after 7,8", "--dependency=afterok:7:8"),
        ("--after 7 --after-any", "--dependency=afterany:7"),
        ("--after 6 --after-fail 7,9 --after-any 8", "--dependency=afterok:6,afternotok:7:9,afterany:8"),
        ("--signal SIGUSR1@5m --time-limit 1h", "--time=0-01:00:00 --signal=USR1@300"),
        ("--hold --no-preempt", "--hold --no-requeue"),
        ("--cpus 1.5 --ram 3G", "--cpus-per-task=2 --mem=3072M"),
        ("--max 0.8 --mem 20G --class latency", "--vgpu-max=0.8 --vgpu-mem=21474836480 --vgpu-class=latency"),
        ("-C /tmp --log out-%j.log", "--chdir=/tmp --output=out-%j.log"),
        ("--wait", "--wait"),
        ("--notify start,failure --notify-mail a@b", "--mail-user=a@b --mail-type=BEGIN,FAIL"),
        ("--notify-mail a@b", "--mail-user=a@b --mail-type=END"),
        ("--model resnet50 --skew 0.75 --expected 90m", "'--comment=vgpu model=resnet50 skew=0.75 duration=5400s'"),
    ],
)
def test_options_as_sbatch_has_them(options: str, sbatch_options: str) -> None:
    line = dry_run("--gpus", "0.5", *options.split(), "--", "x").splitlines()[0]
    assert f" {sbatch_options} " in line, line


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    for name in list(os.environ):
        if name not in ("HOME", "PATH"):
            monkeypatch.delenv(name)
    said = dry_run("--gpus", "1", "--env", "A=b c", "--no-env", "--", "x")
    assert said.startswith("A='b c' sbatch ") and " --export=HOME,PATH,A " in said


def test_an_array_has_the_same_variable_as_on_one_node() -> None:
    said = dry_run("--gpus", "1", "--array", "1-3", "--", "x")
    assert "\nexport VGPU_ARRAY_INDEX=$SLURM_ARRAY_TASK_ID\nexec x\n" in said


def test_a_job_has_the_name_of_its_script() -> None:
    assert " --job-name=train <<" in dry_run("--gpus", "1", "--", "python", "-u", "train.py")
    said = dry_run("--gpus", "1", "--name", "mine", "--", "python", "train.py")
    assert " --job-name=mine " in said and said.count("--job-name") == 1


def test_a_gang_runs_on_each_node_with_its_processors() -> None:
    said = dry_run("--gpus", "1", "--gang", "2", "--", "x")
    assert "\nexec srun x\n" in said
    assert "\nexec srun --cpus-per-task=4 x\n" in dry_run("--gpus", "1", "--gang", "2", "--cpus", "4", "--", "x")


def test_the_partition_of_another_host(tmp_path: Path) -> None:
    given = ["submit", "--cluster", "--run-dir", str(tmp_path), "--gpus", "1", "--", "x"]
    done = invoke(given)
    assert done.exit_code == ExitCode.UNREACHABLE and "name the --partition" in done.output


def test_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('gpus = 2\nqueue = "team"\ncommand = "./train && ./test"\n[env]\nA = "1"\n')
    said = dry_run("-f", str(path))
    assert said.startswith("A=1 sbatch ") and "--gres=gpu:2 --account=team" in said
    assert "exec /bin/sh -c './train && ./test'" in said
    path.write_text('gpus = 2\npriority = 5\ncommand = "x"\n')
    assert "--priority with --cluster" in refusal("submit", "--cluster", "--partition", "gpu", "-f", str(path))
    path.write_text('gpus = 2\ncluster = true\ncommand = "x"\n')
    assert "there is no key 'cluster'" in refusal("submit", "-f", str(path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--gpus 2.5", "ask for 2 or 3"),
        ("--gpus 0.25..1", "a job keeps its size there"),
        ("--gpus 1 --workers 1-8", "--workers with --cluster: a job keeps its size there"),
        ("--predict net:make", "`vgpu predict MODEL` says"),
        ("--gpus 1 --begin 2h", "when there is capacity"),
        ("--gpus 1 --image x", "podman run IMAGE"),
        ("--gpus 1 --retries 3", "scontrol requeue"),
        ("--gpus 1 --device 0", "--gpu-model"),
        ("--gpus 1 --notify end", "by mail alone"),
        ("--gpus 1 --notify-command x", "by mail alone"),
        ("--gpus 1 --min 0.5", "write it as --gpus"),
        ("--gpus 1 --host unix:///x", "leave --host out"),
        ("--hold", "specify a size"),
        ("--gpus 1 --model a\u00a0b", "write one word"),
    ],
)
def test_what_makes_no_sense_over_the_cluster(options: str, words: str) -> None:
    assert words in refusal("submit", "--cluster", "--partition", "gpu", *options.split(" "), "--", "x")


def test_a_terminal_is_sruns() -> None:
    done = invoke(["submit", "--cluster", "--gpus", "1", "--pty", "--", "bash"])
    assert done.exit_code == 125 and "srun --pty --partition" in done.output


def test_each_option_makes_sense_or_is_refused() -> None:
    """An option that is added to `vgpu submit` is thought of here, too."""
    taken = {"gpus", "gang", "max_milli", "mem", "service_class", "cpus", "ram", "name", "queue", "time_limit"}
    taken |= {"after", "after_ok", "after_fail", "after_any", "signal"}
    taken |= {"expected", "array", "hold", "directory", "log", "env", "no_env", "notify"}
    taken |= {"notify_mail", "skew", "no_preempt", "wait", "quiet", "command", "file", "template", "over_cluster"}
    taken |= set(ONLY)
    everywhere = {"output", "host", "headers", "color", "timeout_s"}
    assert {param.name for param in submit.params} == taken | INSTEAD.keys() | everywhere


@pytest.mark.parametrize("option", ["--dry-run", "--partition=gpu", "--model=x", "--gpu-model=x", "--run-dir=x"])
def test_what_makes_sense_over_the_cluster_alone(option: str) -> None:
    said = refusal("submit", option, "--gpus", "1", "--", "x")
    assert f"{option.partition('=')[0]} needs --cluster" in said


def test_a_job_is_submitted_and_runs(system: System) -> None:
    one = system.service()
    one.look()
    run = str(system.options.run)
    done = system.run("submit", "--cluster", "--run-dir", run, "--gpus", "0.5", "-q", "--", "./train")
    assert (done.exit_code, done.output) == (0, "1\n")
    assert system.slurm().scripts["1"] == "#!/bin/sh\nexec ./train\n"
    said = system.say("submit", "--cluster", "--run-dir", run, "--gpus", "1", "-o", "json", "--", "./train")
    assert json.loads(said)["job_ids"] == ["2"]
    assert "vgpu explain --cluster 3" in system.say("cluster", "submit", "--run-dir", run, "--", "./train")
    one.look()
    assert [job.state for job in system.slurm().jobs.values()] == ["RUNNING"] * 3
    one.close()


def test_what_is_shown_is_one_command_for_a_shell() -> None:
    """Whatever lines the job's own command has."""
    shown = dry_run("--gpus", "1", "--", "sh", "-c", "cat <<END\nEND\nEND_\ndate")
    assert shown.splitlines()[0].endswith("<<'END__'") and shown.splitlines()[-1] == "END__"


def test_sbatch_refuses_it(system: System) -> None:
    done = system.run("submit", "--cluster", "--partition", "other", "--gpus", "1", "--", "x")
    assert done.exit_code == 1 and "sbatch refused it" in done.output
    done = system.run("submit", "--cluster", "--partition", "other", "--gpus", "1", "--wait", "--", "x")
    assert done.exit_code == 125


@pytest.mark.parametrize(
    ("script", "words", "code", "output"),
    [
        ("echo '7;east'", (), 0, "7\n"),
        ("echo 7; exit 3", ("--wait",), 3, "7\n"),
        ("echo 7; kill -9 $$", ("--wait",), 137, "7\n"),
    ],
)
def test_what_sbatch_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    words: tuple[str, ...],
    code: int,
    output: str,
) -> None:
    """In a federation its number has the cluster's name behind it; with --wait its exit code is the job's."""
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    given = ["submit", "--cluster", "--partition", "gpu", "--gpus", "1", "-q", *words, "--", "x"]
    assert (invoke_vgpu(given), capsys.readouterr().out) == (code, output)


def test_a_job_that_submits_another_does_not_pass_on_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sbatch").write_text(
        '#!/bin/sh\necho "7;${VGPU_ARRAY_INDEX-none} ${VGPU_WORKER-none}" >> $0.told; echo 7\n'
    )
    (tmp_path / "sbatch").chmod(0o755)
    for name, value in {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "VGPU_ARRAY_INDEX": "3",
        "VGPU_WORKER": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert invoke_vgpu(["submit", "--cluster", "--partition", "gpu", "--gpus", "1", "-q", "--", "x"]) == 0
    assert (capsys.readouterr().out, (tmp_path / "sbatch.told").read_text()) == ("7\n", "7;none none\n")


def test_no_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = invoke(["submit", "--cluster", "--partition", "gpu", "--gpus", "1", "--", "x"])
    assert done.exit_code == ExitCode.UNREACHABLE and "install Slurm's client programs" in done.output


# ---- the queue ----


@pytest.fixture
def busy(system: System) -> System:
    """Job 1 runs, jobs 2 and 3_1 wait, job 4 is held by its user."""
    one = system.service()
    system.submit("gpu:2", uid=1001)
    system.submit("gpu:2", uid=os.getuid())
    system.submit("gpu:2", key="3_1")
    system.submit("gpu:1", user_hold=True)
    one.look()
    one.look()
    one.close()
    return system


def list_names(system: System, *words: str) -> list[str]:
    given = ("job", "ls", "--cluster", "--run-dir", str(system.options.run), "-o", "name", *words)
    return system.say(*given).split()


def test_jobs_are_listed_as_by_vgpu_cluster_ls(busy: System) -> None:
    run = ("--run-dir", str(busy.options.run))
    assert busy.say("job", "ls", "--cluster", *run) == busy.say("cluster", "ls", *run)
    assert list_names(busy) == ["1", "4", "2", "3_1"]
    assert list_names(busy, "--mine") == ["2"]
    assert list_names(busy, "-u", "1001") == ["1"]
    assert list_names(busy, "--state", "pending,held") == ["4", "2", "3_1"]
    assert list_names(busy, "--state", "running") == ["1"]
    status = busy.options.run / "status.json"
    status.write_text(status.read_text().replace('"running"', '"stopping"'))
    assert list_names(busy, "--state", "running") == ["1"], "it has its GPUs until it has stopped"
    assert list_names(busy, "--queue", "default", "--last", "1") == ["3_1"]
    assert list_names(busy, "--queue", "other") == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--all", "by `sacct`"),
        ("--since 1h", "by `sacct`"),
        ("--state failed", "the states there are pending"),
        ("--mine -u 77", "name different users"),
    ],
)
def test_lists_that_the_cluster_does_not_have(busy: System, options: str, words: str) -> None:
    assert words in refusal("job", "ls", "--cluster", "--run-dir", str(busy.options.run), *options.split())


def test_a_job_is_explained(busy: System) -> None:
    run = ("--run-dir", str(busy.options.run))
    said = busy.say("explain", "--cluster", "3_1", *run)
    assert said == busy.say("cluster", "explain", "3_1", *run) and "is pending in queue default" in said
    assert "scontrol release" in busy.say("explain", "4", "--cluster", *run)
    assert "is not a Slurm job" in refusal("explain", "--cluster", "3-1", *run)
    assert "'3_1' is not a job" in refusal("explain", "3_1")
    done = busy.run("explain", "--cluster", "77", *run)
    assert done.exit_code == ExitCode.NOT_FOUND


def test_a_job_far_behind_is_not_denied(
    busy: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of very many jobs the first ones are published."""
    monkeypatch.setattr(service, "STATUS_JOBS_MAX", 1)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        busy.submit("gpu:9")
    busy.submit("gpu:1", key="70")
    one = busy.service()
    one.look()
    listed = busy.say("cluster", "ls", "--run-dir", str(busy.options.run))
    assert "5 is not queued" in listed and "1 more jobs are not queued" in listed and "6 is" not in listed
    assert "job 70: " in caplog.text, "in the log jobs have the numbers of Slurm, too"
    done = busy.run("explain", "--cluster", "3_1", "--run-dir", str(busy.options.run))
    one.close()
    assert done.exit_code == ExitCode.NOT_FOUND and "behind which there are 5 more" in " ".join(done.output.split())


def test_reasons_have_slurms_numbers(system: System) -> None:
    one = system.service()
    system.submit("gpu:9", key="70")  # refused, so that the numbers are not the same
    system.submit("gpu:2", key="80")
    system.submit("gpu:1", key="81_4")
    wide = system.submit("gpu:2", key="90")
    one.look()
    one.look()
    names = {job.job_id: job.spec.name for job in one.controller.machine.jobs.values()}
    assert names == {1: "80", 2: "81_4", 3: wide}
    one.close()
    assert with_slurms_numbers("job 1 has it; jobs 1, 2 and 3 more", names) == "job 80 has it; jobs 80, 81_4 and 3 more"
    assert with_slurms_numbers("2 jobs of the array of job 2 run, job 9 does not", names) == (
        "2 jobs of the array of job 2 run, job 9 does not"
    )


def test_one_queue_is_shown(busy: System) -> None:
    run = ("--run-dir", str(busy.options.run))
    assert busy.say("queue", "ls", "--cluster", *run) == busy.say("cluster", "queues", *run)
    shown = json.loads(busy.say("queue", "ls", "default", "--cluster", *run, "-o", "json"))["queue"]
    assert (shown["name"], shown["used_milli"], shown["waiting"], shown["limit_milli"]) == ("default", 2000, 3, None)
    done = busy.run("queue", "ls", "other", "--cluster", *run)
    assert done.exit_code == ExitCode.NOT_FOUND and "the only queue is default" in done.output


# ---- usage ----


@pytest.fixture
def used_system(system: System) -> System:
    one = system.service()
    first, second = system.submit("gpu:2", uid=1001), system.submit("shard:500", uid=1002)
    one.look()
    one.look()
    system.end(first)
    system.change(lambda slurm: slurm.end(second, "FAILED", 3))
    one.look()
    one.close()
    return system


def test_usage_by_user_queue_and_job(used_system: System) -> None:
    state = ("--state-dir", str(used_system.options.state))

    def usage(*words: str) -> list[dict[str, object]]:
        data = json.loads(used_system.say("usage", "--cluster", *state, "-o", "json", *words))
        rows = data["usage" if "usage" in data else "jobs"]
        assert isinstance(rows, list)
        return rows

    by_user = usage()
    assert [(row["uid"], row["jobs"]) for row in by_user] == [(1001, 1), (1002, 1)]
    assert all(0 < row["gpu_seconds_granted"] <= row["gpu_seconds_asked"] for row in by_user)  # type: ignore[operator]
    (queue,) = usage("--by", "queue")
    assert (queue["queue"], queue["jobs"]) == ("default", 2)
    jobs = usage("--by", "job")
    assert [row["slurm_id"] for row in jobs] == ["1", "2"]
    for row in (*by_user, *jobs):
        assert row["user"] == find_user_name(int(str(row["uid"])))
    assert "user" not in queue
    assert [row["slurm_id"] for row in usage("--by", "job", "--state", "failed")] == ["2"]
    assert [row["slurm_id"] for row in usage("--by", "job", "-u", "1001")] == ["1"]
    assert usage("--until", "1d") == [] and usage("--since", "1d") == by_user
    table = used_system.say("usage", "--cluster", *state).splitlines()
    assert table[0].split() == ["USER", "JOBS", "ASKED", "GRANTED"] and len(table) == 3
    assert used_system.say("usage", "--cluster", *state, "-o", "csv") == used_system.say(
        "cluster", "usage", *state, "-o", "csv"
    )
    assert used_system.say("usage", "--cluster", *state, "--by", "queue", "-o", "csv").startswith(
        "queue,jobs,gpu_seconds_asked"
    )


def test_a_gang_counts_on_each_of_its_nodes(system: System) -> None:
    """GPU time asked for and granted is that of all its members."""
    one = system.service()
    gang = system.submit("gpu:1", nodes=2)
    one.look()
    one.look()
    system.end(gang)
    one.look()
    one.close()
    state = ("--state-dir", str(system.options.state), "-o", "json")
    (job,) = json.loads(system.say("usage", "--cluster", "--by", "job", *state))["jobs"]
    (queue,) = json.loads(system.say("usage", "--cluster", "--by", "queue", *state))["usage"]
    assert queue["gpu_seconds_granted"] == pytest.approx(2 * float(job["duration_s"]), abs=1e-5)


def test_what_the_controller_has_is_a_trace(used_system: System) -> None:
    trace = used_system.folder / "month.csv"
    trace.write_text(used_system.say("usage", "--cluster", "--state-dir", str(used_system.options.state), "-o", "csv"))
    said = used_system.say("whatif", "--trace", str(trace), "--cluster", "2x2", "--policy", "2d-las", "-o", "json")
    assert json.loads(said[: said.rindex("}") + 1])["runs"][0]["jobs"] == 2


def test_a_database_of_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny_stat(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", deny_stat)
    done = invoke(["usage", "--cluster", "--state-dir", str(tmp_path)])
    assert "show your own jobs" in str(done.exception)


def test_where_there_is_no_database(tmp_path: Path) -> None:
    done = invoke(["usage", "--cluster", "--state-dir", str(tmp_path)])
    assert f"there is no {tmp_path / store.FILE_NAME}" in str(done.exception)
    assert "--state-dir needs --cluster" in refusal("usage", "--state-dir", "x")


# ---- replay ----


def test_a_recorded_queue_is_decided_again(used_system: System) -> None:
    record = used_system.folder / "record"
    said = used_system.say("whatif", "--replay", str(record))
    assert "the same commands in the same order" in said
    shown = used_system.say("whatif", "--replay", str(record), "-o", "json")
    data = json.loads(shown[: shown.rindex("}") + 1])
    assert data["starts"] == 2 and data["different"] == 0 and data["steps"] > 2

    record.write_text(record.read_text().replace('"attempt": 1', '"attempt": 7', 1))
    done = used_system.run("whatif", "--replay", str(record))
    assert done.exit_code == ExitCode.OTHER and "are decided differently" in done.output and "step " in done.output


def test_recordings_that_cannot_be_replayed(used_system: System) -> None:
    record = used_system.folder / "record"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text(lines[0] + '{"at_ns": 1, "event": {"type": "Held", "job_id": 99}, "commands": []}\n')
    done = used_system.run("whatif", "--replay", str(record))
    assert "from its first line on" in str(done.exception)
    step = '{"at_ns": %s, "event": {"type": "Woken"}, "commands": %s}\n'
    for text, words in (
        ("", "no steps"),
        ("{}\n", "is missing"),
        ("nothing", "record:1"),
        (lines[0] + re.sub('"at_ns": [0-9]+', '"at_ns": "x"', "".join(lines[1:])), "TypeError"),
        (lines[0] + step % (1, "[5]"), "TypeError"),
        (lines[0] + step % (1, "[{}]"), "KeyError"),
        ("[" * 100_000, "RecursionError"),
    ):
        record.write_text(text)
        done = used_system.run("whatif", "--replay", str(record))
        assert isinstance(done.exception, VgpudError | SystemExit), done.exception
        assert words in str(done.exception) + done.output
    assert "--policy with --replay" in refusal("whatif", "--replay", str(record), "--policy", "fifo")
