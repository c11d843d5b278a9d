"""Every page and every action, against a fake daemon."""

from __future__ import annotations

import csv
import io
import re
import time

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon, uuid_of
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import FakeBroker, Post, text_of

NASTY = "<script>alert('x')</script>&\"'"
GIB = 1 << 30


def add_slice(daemon: FakeDaemon, name: str, milli: int = 500, owner: int = 1) -> pb.Slice:
    item = pb.Slice(name=name, uid=f"u-{name}", owner_uid=owner, spec=pb.SliceSpec(gpus_milli=milli), node="testnode")
    item.devices.add(
        device_uuid=uuid_of(0),
        min_milli=milli,
        max_milli=1000,
        mem_min_bytes=GIB,
        mem_max_bytes=2 * GIB,
        mem_used_bytes=GIB,
        share_ratio=0.25,
        gate=pb.GATE_CLOSED,
        wait_counts=[0, 3, 1],
    )
    daemon.slices[name] = item
    return item


def add_job(daemon: FakeDaemon, job_id: int, state: str = "pending", uid: int = 1, **spec: object) -> None:
    fields = {"name": f"job{job_id}", "queue": "default", "command": ["true"], **spec}
    job = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=500), **fields)  # type: ignore[arg-type]
    daemon.queue.add(job_id, state, spec=job, uid=uid, reason=f"reason {job_id}", log=f"/logs/{job_id}")


# ---- pages ----


@pytest.mark.parametrize(
    "path",
    ["/", "/queue", "/submit", "/quotas", "/usage", "/whatif", "/events", "/kubernetes", f"/device/{uuid_of(0)}"],
)
def test_pages_are_shown(alice: TestClient, path: str) -> None:
    answer = alice.get(path)
    assert answer.status_code == 200
    assert "alice" in answer.text
    assert 'lang="en"' in answer.text


def test_the_overview_has_devices_slices_and_counts(alice: TestClient, daemon: FakeDaemon) -> None:
    add_slice(daemon, "train")
    daemon.devices[1].drained = "fan broken"
    daemon.queue.queues["default"].running = 3
    html = alice.get("/").text
    text = text_of(html)
    assert "device 1 is drained: fan broken" in text
    assert "3 jobs run" in text
    assert 'href="/slice/train"' in html
    assert "Device 0: 0 GPUs allocated" in html


def test_a_sleeping_slice_is_said_to_sleep_and_its_gate_not_to_be_closed(alice: TestClient, daemon: FakeDaemon) -> None:
    made = add_slice(daemon, "train")
    made.devices[0].gate, made.residency = pb.GATE_CLOSED, pb.RESIDENCY_AWAY
    made.asleep_time.FromSeconds(1)
    for path in ("/", "/slice/train"):
        text = text_of(alice.get(path).text)
        assert "asleep" in text and "closed</" not in alice.get(path).text, path


def test_other_nodes_consoles_are_in_a_menu_for_users_only(alice: TestClient, stranger: TestClient) -> None:
    page = alice.get("/queue").text
    assert '<a href="https://n2:8377">n2</a>' in page
    assert '<a href="https://n3:8377/?a=1&amp;b=2">&lt;n3&gt;</a>' in page
    stranger.cookies.clear()
    assert "n2:8377" not in stranger.get("/login").text


def test_names_are_escaped_everywhere(alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker) -> None:
    add_slice(daemon, "train").queue = NASTY
    daemon.devices[0].drained = daemon.devices[0].name = NASTY
    daemon.events.append(pb.Event(sequence=1, kind="device.xid", slice=NASTY, message=NASTY))
    daemon.queue.queues["default"].policy = NASTY
    add_job(daemon, 1, name=NASTY, queue=NASTY, command=[NASTY])
    daemon.queue.facts.append(pb.Fact(kind=pb.FACT_KIND_DEVICE, text=NASTY))
    daemon.add_process("train", 5, NASTY)
    fake_broker.files["/logs/1"] = NASTY.encode()
    paths = ["/", "/queue", "/slice/train", "/job/1", "/job/1/part", "/quotas", "/events", "/submit"]
    for path in [*paths, f"/device/{uuid_of(0)}", f"/queue?user={NASTY}&text={NASTY}", f"/events?kind={NASTY}"]:
        html = alice.get(path).text
        assert "<script>alert" not in html, path
        assert '&"' not in html.replace("&quot;", ""), path


def test_a_slice_shows_limits_waits_and_programs(alice: TestClient, daemon: FakeDaemon) -> None:
    add_slice(daemon, "train")
    daemon.add_process("train", 4711, "python train.py")
    text = text_of(alice.get("/slice/train").text)
    assert "minimum 0.5, maximum 1" in text
    assert "4 waits" in text
    assert "4711" in text
    assert "python train.py" in text


def make_history(*begins_s: int) -> pb.History:
    made = pb.History(name="train")
    made.step.FromSeconds(10)
    for begin_s in begins_s:
        made.points.add(
            used_milli=250, max_milli=500, mem_used_bytes=GIB, mem_max_bytes=2 * GIB
        ).begin_time.FromSeconds(begin_s)
    return made


def test_curves_are_what_the_daemon_recorded(alice: TestClient, daemon: FakeDaemon) -> None:
    daemon.histories |= dict.fromkeys(("train", "", uuid_of(0), "7"), make_history(1000, 1010, 1050))
    found = alice.get("/slice/train/curves.json").json()
    assert found["at"] == [1000, 1010, 1020, 1050]
    assert found["share"] == [0.25, 0.25, None, 0.25], "a gap is none"
    assert found["limit"][0] == 2 * GIB
    assert found["end"] - found["begin"] == 3600
    add_job(daemon, 7)
    for path in ("/", f"/device/{uuid_of(0)}/", "/job/7/"):
        assert alice.get(f"{path}curves.json").json()["share"][0] == 0.25, path
    assert "no history" in alice.get("/slice/none/curves.json").json()["problem"]


def test_the_range_of_curves_is_chosen_in_the_address(alice: TestClient, daemon: FakeDaemon) -> None:
    add_slice(daemon, "a b")
    daemon.histories["a b"] = make_history(1000)
    html = alice.get("/slice/a%20b?range=1w").text
    assert 'data-curves="/slice/a%20b/curves.json?range=1w"' in html
    assert '<a href="?range=1w" aria-current="true">last week</a>' in html
    assert 'data-curves="/curves.json?range=1h"' in alice.get("/?range=100y").text, "another one is the last hour"
    found = alice.get("/slice/a%20b/curves.json?range=1w").json()
    assert found["end"] - found["begin"] == 7 * 86_400


def test_curves_of_a_job_are_of_its_run(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7)
    job = daemon.queue.jobs[7]
    assert "range=run" not in alice.get("/job/7").text, "it has not begun"
    job.start_time.FromSeconds(5000)
    job.end_time.FromSeconds(5600)
    daemon.histories["7"] = make_history(5000)
    assert 'data-curves="/job/7/curves.json?range=run"' in alice.get("/job/7").text
    found = alice.get("/job/7/curves.json?range=run").json()
    assert (found["begin"], found["end"]) == (5000, 5600)
    assert daemon.requests[-1].until_time.seconds == 5600


@pytest.mark.parametrize("number", ["9" * 19, "9" * 20, "9" * 5000, "-1", "\u00b2", "1.5"])
def test_a_number_that_no_job_has_is_not_found(alice: TestClient, number: str) -> None:
    for path in (f"/job/{number}", f"/job/{number}/part", f"/job/{number}/output.json", f"/job/{number}/output"):
        assert alice.get(path).status_code == 404, path[:40]
    for verb in ("cancel", "hold", "release", "requeue", "change"):
        answer = alice.post(f"/job/{number}/{verb}", data={"csrf": "token-of-alice-1"})
        assert answer.status_code == 404, verb


@pytest.mark.parametrize("path", ["/device/none", "/job/x", "/nothing", "/static/none", "/static/..%2fapp.py"])
def test_what_is_not_there_is_404(alice: TestClient, path: str) -> None:
    assert alice.get(path).status_code == 404


def test_a_refusal_of_a_page_is_its_sentence(alice: TestClient) -> None:
    for path, sentence in (("/job/99", "no job 99"), ("/slice/none", "no slice none")):
        answer = alice.get(path)
        assert answer.status_code == 403
        assert sentence in text_of(answer.text)


# ---- the queue ----


def ids(html: str) -> list[int]:
    return [int(part.partition('"')[0]) for part in html.split('<tr id="j')[1:]]


def test_the_queue_is_filtered(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 1, "running", uid=1)
    add_job(daemon, 2, "pending", uid=2, queue="other")
    add_job(daemon, 3, "held", uid=1, name="special")
    add_job(daemon, 4, "failed", uid=1)
    daemon.queue.queues["other"] = pb.Queue(name="other")
    found = {
        "": [1, 2, 3],
        "state=running": [1],
        "state=ended": [4],
        "state=failed": [4],
        "state=completed": [],
        "user=2": [2],
        "queue=other": [2],
        "text=special": [3],
        "text=2": [2],
        "state=nonsense": [1, 2, 3],
    }
    assert {query: ids(alice.get(f"/queue?{query}").text) for query in found} == found


def test_the_queue_has_pages(alice: TestClient, daemon: FakeDaemon) -> None:
    for number in range(1, 121):
        add_job(daemon, number)
    first, last = alice.get("/queue").text, alice.get("/queue?page=3").text
    assert len(ids(first)) == 50
    assert ids(last) == list(range(101, 121))
    assert 'rel="next"' in first
    assert 'rel="next"' not in last
    assert len(ids(alice.get("/queue?page=99").text)) == 20


def test_a_filter_by_htmx_gets_the_region_only(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 1)
    html = alice.get("/queue?user=1", headers={"HX-Request": "true"}).text
    assert "<html" not in html
    assert ids(html) == [1]
    assert "/live/queue?state=active&amp;user=1" in html


# ---- a job ----


def test_a_job_shows_reasons_and_its_log(alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker) -> None:
    add_job(daemon, 7, "running", uid=5)
    daemon.queue.facts.append(pb.Fact(kind=pb.FACT_KIND_QUEUE, text="queue a has nothing left"))
    fake_broker.files["/logs/7"] = b"x" * 70_000 + b"\nepoch 3\n"
    text = text_of(alice.get("/job/7").text)
    assert "why queue a has nothing left" in text
    assert "epoch 3" in text
    assert "68.4KiB, of which the end is shown" in text
    assert fake_broker.read == [(1, 5, "/logs/7")], "the owner's rights are asked for"
    fake_broker.files.clear()
    assert "/logs/7: No such file" in text_of(alice.get("/job/7").text)


def test_a_job_has_the_buttons_of_its_present_state(alice: TestClient, daemon: FakeDaemon) -> None:
    """They are in the part that is asked for again, which asks no more once the job has ended."""
    add_job(daemon, 7, "pending")
    page = alice.get("/job/7").text
    assert 'hx-get="/job/7/part"' in page and "/job/7/hold" in page
    daemon.queue.jobs[7].state = pb.JOB_STATE_RUNNING
    part = alice.get("/job/7/part").text
    assert 'hx-get="/job/7/part"' in part and "/job/7/cancel" in part and "/job/7/hold" not in part
    daemon.queue.jobs[7].state = pb.JOB_STATE_COMPLETED
    for html in (alice.get("/job/7/part").text, alice.get("/job/7").text):
        assert not any(word in html for word in ("/job/7/part", "/job/7/cancel", "/job/7/requeue", "/job/7/change"))
        assert "/submit?like=7" in html


def test_the_pages_name_the_zone_of_their_times(
    alice: TestClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are on the node's clock, and the browser draws curves on the same."""
    for zone, name, offset_s in (
        ("Asia/Kolkata", "Asia/Kolkata, UTC+05:30", 19_800),
        ("<-03>3", "UTC-03:00", -10_800),
        ("UTC0", "UTC", 0),
    ):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        try:
            page = alice.get("/events").text
        finally:
            monkeypatch.undo()
            time.tzset()
        assert f"the console's machine: {name}." in text_of(page) and f'data-offset="{offset_s}"' in page


def test_a_long_name_is_cut_in_its_cell_and_is_all_there(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "pending")
    daemon.queue.jobs[7].spec.name = "n" * 90
    assert f'<td class="name" title="{"n" * 90}">' in alice.get("/queue").text


def test_slices_are_listed_in_their_natural_order(alice: TestClient, daemon: FakeDaemon) -> None:
    for name in ("run-1", "run-10", "run-2"):
        add_slice(daemon, name)
    rows = re.findall(r'<td class="name" title="(run-\d+)">', alice.get("/").text)
    assert rows == ["run-1", "run-2", "run-10"]


@pytest.mark.parametrize(
    ("action", "old_state", "new_state"),
    [
        ("cancel", "running", "cancelled"),
        ("hold", "pending", "held"),
        ("release", "held", "pending"),
        ("requeue", "running", "pending"),
    ],
)
def test_actions_on_a_job(post: Post, daemon: FakeDaemon, action: str, old_state: str, new_state: str) -> None:
    add_job(daemon, 3, old_state)
    html = post(f"/job/3/{action}")
    assert daemon.queue.state(3) == new_state
    assert 'class="flash done"' in html


def test_a_waiting_job_is_changed(post: Post, daemon: FakeDaemon) -> None:
    add_job(daemon, 3, "pending")
    html = post("/job/3/change", gpus="0.25", gpus_was="0.5", priority="0", priority_was="0", mem="4G", time_limit="2h")
    request = daemon.queue.requests[-1]
    memory = ["slice.mem_min_bytes", "slice.mem_max_bytes"]
    assert list(request.update_mask.paths) == ["slice.gpus_milli", *memory, "time_limit"]
    assert (request.spec.slice.gpus_milli, request.spec.time_limit.seconds) == (250, 7200)
    assert "Job 3 was changed." in html
    assert "nothing was changed" in post("/job/3/change", priority="0", priority_was="0", time_limit="")
    assert "is not a whole number" in post("/job/3/change", priority="high", priority_was="0")
    post("/job/3/change", time_limit="", time_limit_was="2h")
    assert not daemon.queue.requests[-1].spec.HasField("time_limit"), "none again"


def test_a_refused_action_says_why_once(post: Post, alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 3, "failed")
    assert "Refused: job 3 has failed: it cannot be changed" in text_of(post("/job/3/hold"))
    assert "Refused" not in alice.get("/job/3").text


# ---- slices ----


def test_a_slice_is_resized(post: Post, daemon: FakeDaemon) -> None:
    add_slice(daemon, "train")
    html = post("/slice/train/resize", min="0.25", min_was="0.5", max="1", max_was="1", mem="3G")
    request = daemon.requests[-1]
    assert list(request.update_mask.paths) == ["min_milli", "mem_max_bytes"]
    assert (request.spec.min_milli, request.spec.mem_max_bytes) == (250, 3 * GIB)
    assert "Slice train was resized." in html


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"min": "0.5", "min_was": "0.5"}, "nothing was changed"),
        ({"min": "much"}, "is not a number of GPUs"),
        ({"mem": "lots"}, "is not an amount of memory"),
        ({"min": "0.9", "max": "0.3"}, "min 900 is more than max 300"),
    ],
)
def test_a_refused_resize_is_a_sentence(post: Post, daemon: FakeDaemon, fields: dict[str, str], sentence: str) -> None:
    add_slice(daemon, "train")
    assert sentence in text_of(post("/slice/train/resize", **fields))


def test_a_slice_is_removed(post: Post, daemon: FakeDaemon) -> None:
    add_slice(daemon, "train").processes = 1
    assert "Refused: slice train has 1 processes" in text_of(post("/slice/train/remove"))
    assert "Slice train was removed." in post("/slice/train/remove", force="yes")
    assert not daemon.slices


# ---- submitting ----


def test_a_job_is_submitted(post: Post, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    html = post(
        "/submit",
        command="python 'my train.py' --lr 0.1",
        gpus="0.5",
        mem="8G",
        name="net",
        time_limit="2h30m",
        array="1-3",
        environment="A=1\nB=two words",
        hold="yes",
        directory="work",
        request_id="r1",
    )
    spec = daemon.queue.requests[-1].spec if hasattr(daemon.queue.requests[-1], "spec") else None
    assert spec is not None
    assert list(spec.command) == ["python", "my train.py", "--lr", "0.1"]
    assert (spec.slice.gpus_milli, spec.slice.mem_max_bytes) == (500, 8 * GIB)
    assert (list(spec.array_indices), spec.hold) == ([1, 2, 3], True)
    assert spec.time_limit.seconds == 9000
    assert spec.environment["B"] == "two words"
    assert spec.environment["HOME"]
    assert spec.directory.endswith("/work")
    assert "Jobs 1 to 3 were queued." in html


def test_a_job_is_submitted_for_later_with_news_of_it(post: Post, daemon: FakeDaemon) -> None:
    news = {"notify": "start, failure", "notify_mail": "ann@example.org", "notify_command": "/bin/sh -c 'echo done'"}
    post("/submit", command="true", gpus="0.5", array="1-9:2%2", begin="2096-01-02T03:04Z", **news)
    spec = daemon.queue.requests[-1].spec
    assert (list(spec.array_indices), spec.array_limit) == ([1, 3, 5, 7, 9], 2)
    assert spec.begin_time.ToJsonString() == "2096-01-02T03:04:00Z"
    assert list(spec.notification.events) == [pb.NOTIFICATION_EVENT_START, pb.NOTIFICATION_EVENT_FAILURE]
    assert (spec.notification.mail, spec.notification.webhook) == ("ann@example.org", "")
    assert list(spec.notification.command) == ["/bin/sh", "-c", "echo done"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"gpus": "0.5"}, "a job needs a command"),
        ({"command": "x", "gpus": "half"}, "gpus: 'half' is not a number of GPUs"),
        ({"command": "x 'y", "gpus": "1"}, "close the quote"),
        ({"command": "x", "gpus": "1", "array": "8-1"}, "array: '8-1' of the array '8-1' is an empty range"),
        ({"command": "x", "gpus": "1", "begin": "soon"}, "begin: 'soon' is not a point in time"),
        ({"command": "x", "gpus": "1", "notify": "end"}, "notify: write where the news goes"),
        ({"command": "x", "gpus": "1", "notify": "lunch"}, "notify: 'lunch' is no event of a job"),
        ({"command": "x", "gpus": "1", "notify_command": "mail x"}, "notify_command: write the whole path of 'mail'"),
        ({"command": "x", "gpus": "1", "time_limit": "soon"}, "time_limit: 'soon' is not a time"),
        ({"command": "x", "gpus": "1", "priority": "high"}, "priority: 'high' is not a valid"),
        ({"command": "x", "gpus": "1", "environment": "A"}, "is not a variable"),
    ],
)
def test_a_refused_form_keeps_what_was_written(post: Post, fields: dict[str, str], sentence: str) -> None:
    html = post("/submit", **fields, name="kept-name")
    assert sentence in text_of(html).replace("&#39;", "'")
    assert 'value="kept-name"' in html


def test_a_prediction_names_a_file_of_this_machine(post: Post) -> None:
    assert "absolute path" in post("/submit/predict", model="net:make")
    assert "No such file" in post("/submit/predict", model="/tmp/none.onnx")


def test_a_prediction_fills_in_the_size(
    post: Post, daemon: FakeDaemon, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    async def run(arguments: list[str]) -> object:
        asked.append(arguments)
        share = {"value": 0.31, "low": 0.2, "high": 0.4}
        memory = {"value": GIB, "low": GIB, "high": 3 * GIB + 1}
        return {"gpu": "h200", "in_range": True, "why": None, "utilisation": share, "memory_bytes": memory}

    monkeypatch.setattr("vgpud.console.pages.commands.run", run)
    fake_broker.files["/models/net.onnx"] = b"model"
    html = post("/submit/predict", model="/models/net.onnx", optimizer="adam", precision="fp16", model_batch="8")
    assert 'name="gpus" value="0.35"' in html
    assert 'name="mem" value="3136M"' in html
    assert asked[0][2:] == ["--gpu", "SIMULATED H200", "--optimizer", "adam", "--precision", "fp16", "--batch", "8"]
    assert fake_broker.read == [(1, 1, "/models/net.onnx")], "with the user's own rights"


# ---- quotas, usage, what if ----


def test_a_quota_is_set_and_removed(post: Post, daemon: FakeDaemon) -> None:
    html = post("/quotas/set", name="team", guarantee="16.5", weight="2", members="uid:1000, gid:5", min_run="5m")
    queue = daemon.queue.queues["team"]
    assert (queue.guarantee_milli, queue.weight, list(queue.members)) == (16500, 2, ["uid:1000", "gid:5"])
    assert queue.min_run.seconds == 300
    assert "limit_milli" in daemon.queue.requests[-1].update_mask.paths, "an empty field is its default"
    assert "Queue team was saved." in html
    assert "Queue team was removed." in post("/quotas/remove", name="team")
    assert "no queue" in text_of(post("/quotas/remove", name="team"))


@pytest.mark.parametrize(
    "fields",
    [
        {"guarantee": "x"},
        {"name": "a", "weight": "0"},
        {"name": "a", "weight": "9" * 5000},
        {"name": "a", "limit": "1e3"},
    ],
)
def test_a_wrong_quota_is_refused(post: Post, daemon: FakeDaemon, fields: dict[str, str]) -> None:
    assert 'class="flash refused"' in post("/quotas/set", **fields)
    assert list(daemon.queue.queues) == ["default"]


def test_usage_is_a_table_and_csv(alice: TestClient, daemon: FakeDaemon) -> None:
    row = {"gpu_seconds_asked": 7200, "gpu_seconds_granted": 3600, "gpu_seconds_used": 900}
    daemon.queue.rows = [pb.Usage(uid=1, queue="default", jobs=4, **row)]
    text = text_of(alice.get("/usage?by=user&since=7d").text)
    assert "2.0h 1.0h 15.0m 25.0%" in text
    answer = alice.get("/usage.csv?by=user&since=all")
    assert answer.headers["content-disposition"] == 'attachment; filename="usage-user-all.csv"'
    (line,) = csv.DictReader(io.StringIO(answer.text))
    assert (line["uid"], line["jobs"], line["gpu_seconds_used"]) == ("1", "4", "900.0")


def test_what_if_needs_jobs_and_a_cluster(post: Post) -> None:
    assert "no job of the last month" in post("/whatif", policy="fifo", compare="", devices="8")
    assert "is not a number of devices" in post("/whatif", policy="fifo", compare="", devices="many")


def test_what_if_simulates_the_jobs(post: Post, daemon: FakeDaemon) -> None:
    """With the simulator itself, in a process of its own."""
    for number in range(1, 4):
        row = pb.Usage(uid=1, queue="default", job_id=number, gpus_milli=1000, members=1)
        row.state = pb.JOB_STATE_COMPLETED
        row.submit_time.FromSeconds(1000 + number)
        row.start_time.FromSeconds(1000 + number)
        row.end_time.FromSeconds(2000 + number)
        row.run_duration.FromSeconds(1000)
        daemon.queue.rows.append(row)
    text = text_of(post("/whatif", policy="fifo", compare="srtf", devices="1"))
    assert "3 jobs" in text
    assert "fifo" in text
    assert "srtf" in text
    assert "Preemptions" in text


def test_events_are_filtered(alice: TestClient, daemon: FakeDaemon) -> None:
    daemon.events += [
        pb.Event(sequence=1, kind="slice.created", message="one"),
        pb.Event(sequence=2, kind="device.xid"),
    ]
    html = alice.get("/events?kind=slice").text
    assert 'id="e1"' in html
    assert 'id="e2"' not in html


def test_devices_are_drained_by_the_api(post: Post) -> None:
    """The fake daemon does not know the call: its refusal is shown."""
    assert 'class="flash refused"' in post(f"/device/{uuid_of(0)}/drain", reason="fan")
