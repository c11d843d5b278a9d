"""Programs of torch.export and Python entry points, against what torch itself says of the same models."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.export import Dim
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.predict import gpumemnet_data
from tests.examples import examples
from tests.predict import models
from vgpud.cli.demo.private_system import wait_for
from vgpud.errors import ExitCode, VgpudError
from vgpud.predict import dry_steps, entry, graph, graph_counts, hardware, memory, torch_pt2, torch_trace
from vgpud.predict.entry import Asked
from vgpud.predict.graph import Graph, GraphError

NAMES = ("convolutional", "perceptron", "encoder", "recurrent")
FAMILIES = {"convolutional": "cnn", "perceptron": "mlp", "encoder": "transformer", "recurrent": "rnn"}
BATCH = 8


def trace_model(name: str, batch: int = BATCH) -> Graph:
    return torch_trace.trace(f"tests.predict.models:{name}", batch, True)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exported once: with the batch as it is, and with any."""
    folder = tmp_path_factory.mktemp("programs")
    made = {}
    for name in ("convolutional", "perceptron", "encoder"):
        model, inputs = getattr(models, name)(BATCH)
        for kind, shapes in (("static", None), ("free", ({0: Dim("batch")},))):
            program = torch.export.export(model, (inputs,), dynamic_shapes=shapes)
            made[f"{name} {kind}"] = folder / f"{name}-{kind}.pt2"
            torch.export.save(program, made[f"{name} {kind}"])
    model, inputs = models.encoder(BATCH)
    shapes = ({0: Dim("batch"), 1: Dim("length", max=64)},)
    made["two free"] = folder / "two.pt2"
    torch.export.save(torch.export.export(model, (inputs,), dynamic_shapes=shapes), made["two free"])
    return made


# ---- what is counted ----


@pytest.mark.parametrize("name", ["convolutional", "perceptron", "encoder"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """torch.utils.flop_counter counts convolutions and products; of the CPU's attention kernel it does not know."""
    counter = FlopCounterMode(display=False)
    model, inputs = getattr(models, name)(BATCH)
    with counter:
        model.train()(inputs)
    made = trace_model(name)
    assert sum(op.flops for op in made.ops if op.kind is not graph.ATTENTION) == counter.get_total_flops()
    attention = [op.flops for op in made.ops if op.kind is graph.ATTENTION]
    assert attention == ([2 * BATCH * 4 * 16 * 16 * (16 + 16)] * 2 if name == "encoder" else [])


def test_a_recurrence_is_one_operation_with_the_flops_of_its_products() -> None:
    """4 gates, 24 steps, two layers: the weights are used at each step for each sample."""
    made = trace_model("recurrent")
    (found,) = [op for op in graph_counts.count(made, BATCH).ops if op.kind == "recurrent"]
    assert found.flops == 2 * BATCH * 24 * 4 * 64 * (32 + 64 + 64 + 64)
    assert sum(found.parameters) == sum(p.numel() for p in models.Recurrent().cells.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_families(name: str) -> None:
    made = trace_model(name)
    counts = graph_counts.count(made, BATCH)
    model, _inputs = getattr(models, name)(1)
    assert sum(sum(op.parameters) for op in counts.ops) == sum(p.numel() for p in model.parameters())
    assert counts.family == FAMILIES[name]
    assert counts.unknown == ()


@pytest.mark.parametrize("name", ["convolutional", "perceptron", "encoder", "residual", "overwriting"])
def test_what_is_kept_is_what_autograd_saves(name: str) -> None:
    """saved_tensors_hooks sees every tensor that torch keeps for the backward pass; views of one count once."""
    saved: dict[int, int] = {}
    model, inputs = getattr(models, name)(64)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept_alive = model.train()(inputs)
    assert kept_alive is not None
    made = trace_model(name, 64)
    dropped = [made.tensors[name].elements for op in made.ops if op.kind is graph.DROPOUT for name in op.outputs]
    on_device = sum(saved.values()) - 3 * sum(dropped)  # its masks are bytes there, and numbers of four bytes here
    assert memory.estimate(made, 64, "sgd", False).kept_bytes == pytest.approx(on_device, rel=0.12)


def test_attention_and_dropout_within_a_layer_are_one_operation_each() -> None:
    """As on a device, although torch's layer calls them from within a function that is asked for as a whole."""
    dropout = torch.nn.functional.dropout
    names = {op.name for model in ("encoder", "perceptron") for op in trace_model(model).ops}
    assert {"scaled_dot_product_attention", "dropout"} <= names
    assert not names & {"bernoulli_", "_softmax", "bmm", "baddbmm"}
    assert torch.nn.functional.dropout is dropout and not torch.jit.is_tracing()


@pytest.mark.parametrize("name", ["convolutional", "perceptron", "encoder"])
def test_a_program_is_counted_as_its_trace(name: str, programs: dict[str, Path]) -> None:
    at_64 = [torch_pt2.read(programs[f"{name} {kind}"], 64, {}) for kind in ("static", "free")]
    found = [graph_counts.count(made, 64) for made in at_64] + [graph_counts.count(trace_model(name, 64), 64)]
    for what in ("family", "inputs", "outputs", "unknown"):
        assert len({getattr(counts, what) for counts in found}) == 1, what
    flops = [sum(op.flops for op in made.ops) * 64 // made.batch for made in (*at_64, trace_model(name, 64))]
    assert len(set(flops)) == 1
    parameters = [sum(sum(op.parameters) for op in counts.ops) for counts in found]
    assert len(set(parameters)) == 1
    peaks = [memory.estimate(made, 64, "adam", False) for made in (*at_64, trace_model(name, 64))]
    assert peaks[0].value == pytest.approx(peaks[2].value, rel=0.25) and peaks[0].value == peaks[1].value


def test_a_perceptron_has_the_features_that_the_shipped_predictor_learnt_from() -> None:
    """GPUMemNet's row of the same model, but for the length of its epoch."""
    named = "input:128_output:10_depth:3_arch:pyramid_batch:64.out"
    layers = "[('linear', 256, 0), ('ReLU', 256, 0), ('linear', 256, 0), ('ReLU', 256, 0), ('linear', 10, 0)]"
    cells = {"Filename": named, "Activations-Params": layers, "Avg GPUTL": "1", "Avg SMACT": "1"}
    theirs = gpumemnet_data.row({**cells, "Max GPU Memory (MiB)": "1"}).features
    made = trace_model("pyramid", 64)
    read = entry.Read(graph_counts.count(made, 64), memory.estimate(made, 64, "adam", False))
    ours = entry.compute_features(read, Asked("pyramid", 64), hardware.find_gpu("a100-40g"))
    epoch = {"batch_mean", "reserved_bytes"}
    assert {name: ours[name] for name in ours if name not in epoch} == {
        name: pytest.approx(theirs[name]) for name in theirs if name not in epoch
    }
    assert ours["reserved_bytes"] == pytest.approx(theirs["reserved_bytes"], rel=0.1)


# ---- free dimensions ----


def test_a_free_batch_has_a_default_and_a_fixed_one_is_the_files(programs: dict[str, Path]) -> None:
    assert entry.read(Asked(str(programs["perceptron free"]))).counts.batch == entry.BATCH
    assert entry.read(Asked(str(programs["perceptron static"]))).counts.batch == BATCH


def test_another_free_dimension_is_named_with_the_fix(programs: dict[str, Path]) -> None:
    with pytest.raises(
        GraphError, match=r"dimension 1 of input 'words' is dynamic: give it with --dim (\w+)=N"
    ) as error_info:
        torch_pt2.read(programs["two free"], 4, {})
    name = str(error_info.value).rpartition("--dim ")[2].partition("=")[0]
    made = torch_pt2.read(programs["two free"], 4, {name: 32})
    assert made.tensors["words"].shape == (4, 32)
    with pytest.raises(GraphError, match="has no free dimension 'nope': leave out --dim nope=N"):
        torch_pt2.read(programs["two free"], 4, {name: 32, "nope": 3})
    with pytest.raises(GraphError, match="has no free dimension 'seq'"):
        entry.read(Asked("tests.predict.models:perceptron", dims={"seq": 3}))


# ---- foreign files ----


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_of_a_program_is_unpickled_and_torch_is_not_needed(tmp_path: Path, programs: dict[str, Path]) -> None:
    mark = tmp_path / "mark"
    trapped = tmp_path / "trapped.pt2"
    with zipfile.ZipFile(programs["perceptron static"]) as old, zipfile.ZipFile(trapped, "w") as new:
        for member in old.infolist():
            model = member.filename.endswith("models/model.json")
            new.writestr(member.filename, old.read(member) if model else pickle.dumps(Trap(mark)))
    code = "import sys; from pathlib import Path; from vgpud.predict import torch_pt2;"
    code += "print(len(torch_pt2.read(Path(sys.argv[1]), 8, {}).ops)); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, str(trapped)], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 3
    assert entry.read(Asked(str(trapped))).counts.family == "mlp"
    assert not mark.exists()
    pickle.loads(pickle.dumps(Trap(mark)))  # noqa: S301  # it would have been seen
    assert mark.exists()


def test_a_file_beside_the_model_is_not_imported(
    tmp_path: Path, programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onnx.py` in the folder of a downloaded model is no module of ours."""
    for name in ("json", "onnx", "torch", "numpy", "vgpud"):
        (tmp_path / f"{name}.py").write_text("import os; os.mkdir('mark')")
    monkeypatch.chdir(tmp_path)
    assert entry.read(Asked(str(programs["perceptron static"]))).counts.family == "mlp"
    assert not (tmp_path / "mark").exists()


def archive(path: Path, document: object, name: str = "x/models/model.json") -> Path:
    text = document if isinstance(document, (str, bytes)) else json.dumps(document)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(name, text)
    return path


def test_a_bomb_is_unpacked_no_further_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = archive(tmp_path / "bomb.pt2", b" " * (64 << 20))
    assert bomb.stat().st_size < 1 << 18
    monkeypatch.setattr(torch_pt2, "JSON_BYTES_MAX", 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(GraphError, match="more than 1 MiB"):
            torch_pt2.read(bomb, 1, {})
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def _deep(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "not JSON"),
        (_deep(200_000), "not JSON"),
        ("[]", "not a program of torch.export"),
        ("{}", "graph_module"),
        ('{"graph_module": 7}', "not a program of torch.export"),
        (
            '{"graph_module": {"graph": {"tensor_values": 5}, "signature": {"input_specs": [{"parameter": 1}]}}}',
            "known",
        ),
        (b"\xff\xfe", "not JSON"),
        ("9" * 100_000, "not JSON"),
    ],
)
def test_documents_that_are_none(tmp_path: Path, document: str | bytes, words: str) -> None:
    with pytest.raises(GraphError, match=words) as error_info:
        torch_pt2.read(archive(tmp_path / "bad.pt2", document), 1, {})
    assert "\n" not in str(error_info.value)


def test_archives_that_are_none(tmp_path: Path, programs: dict[str, Path]) -> None:
    whole = programs["perceptron static"].read_bytes()
    files = {
        "text.pt2": b"hello",
        "empty.pt2": b"",
        "cut.pt2": whole[: len(whole) // 2],
        "weights.pt2": _zip_members({"archive/data.pkl": pickle.dumps({})}),
        "compiled.pt2": _zip_members({"x/data/aotinductor/model/a.so": b""}),
        "two.pt2": _zip_members({"x/models/a.json": b"{}", "x/models/b.json": b"{}"}),
    }
    words = {"compiled.pt2": "AOTInductor", "two.pt2": "has 2 programs"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(GraphError, match=words.get(name, f"{name} is not a program of torch.export")):
            torch_pt2.read(tmp_path / name, 1, {})


def _zip_members(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    return out.getvalue()


JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_a_changed_program_is_read_or_refused(data: st.DataObject, tmp_path: Path, programs: dict[str, Path]) -> None:
    """One value somewhere in the graph is another: numbers, or one line, never another exception."""
    with zipfile.ZipFile(programs["convolutional free"]) as whole:
        member = next(m for m in whole.namelist() if m.endswith("models/model.json"))
        document = json.loads(whole.read(member))
    place: Any = document["graph_module"]
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(place[key], (dict, list)) and place[key]) or data.draw(st.integers(0, 9)) == 0:
            break
        place = place[key]
    place[key] = data.draw(JUNK)
    try:
        made = torch_pt2.read(archive(tmp_path / "changed.pt2", document), 4, {})
        graph_counts.count(made, 4)
        memory.estimate(made, 4, "adam", True)
    except GraphError as error:
        assert "\n" not in str(error)  # noqa: PT017  # it may as well be read


# ---- entry points, in their process ----


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(VgpudError) as error_info:
        entry.read(Asked(name, **options))
    text = str(error_info.value)
    assert "\n" not in text and len(text) < 500
    return text


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])


def test_an_entry_point_is_read_as_in_this_process() -> None:
    found = entry.read(Asked("tests.predict.models:convolutional", batch=4))
    assert found.counts == graph_counts.count(trace_model("convolutional", 4), 4)
    assert found.memory.low <= found.memory.value <= found.memory.high


def test_a_model_may_bring_its_inputs() -> None:
    assert graph_counts.count(trace_model("with_example"), BATCH) == graph_counts.count(
        trace_model("perceptron"), BATCH
    )


def test_inputs_that_a_model_brings_are_scaled_to_the_batch() -> None:
    """They are of eight, whatever is asked for."""
    for batch in (1, 8, 64):
        found = entry.read(Asked("tests.predict.models:with_eight", batch=batch)).counts
        assert found == graph_counts.count(trace_model("perceptron", batch), batch)
    assert entry.read(Asked("tests.predict.models:with_eight")).counts.batch == 8


def test_what_an_entry_point_prints_is_no_answer() -> None:
    found = entry.read(Asked("tests.predict.models:talkative"))
    assert found.counts.batch == entry.BATCH and found.counts.family == "mlp"


BAD_ENTRIES = [
    ("bare", "returns a model without inputs: let it return (model, example inputs)"),
    ("nothing", "returns 'NoneType': let it return (model, example inputs)"),
    ("of_seven", "returns inputs of another batch size: create them for the batch it gets"),
    ("failing", "cannot be traced: ValueError: no model for 8"),
    ("on_a_gpu", "traced without a GPU: leave .cuda() and device= to the training program"),
    ("choosing", "cannot be traced: DataDependentOutputException"),
    ("number", "is not a function of the batch"),
    ("missing", "cannot be loaded: AttributeError"),
    ("exiting", "SystemExit: 4"),
]


@pytest.mark.parametrize(("name", "words"), BAD_ENTRIES)
def test_entry_points_that_are_none(name: str, words: str) -> None:
    with pytest.raises(GraphError, match=re.escape(words)) as error_info:
        trace_model(name)
    assert "\n" not in str(error_info.value)


def test_an_entry_point_that_ends_its_process() -> None:
    assert "its reader ended with code 3" in refusal("tests.predict.models:leaving")


def test_an_entry_point_that_takes_too_long_is_ended() -> None:
    with pytest.raises(GraphError, match="was not read within 8 s") as error_info:
        entry.read(Asked("tests.predict.models:sleeping", timeout_s=8))
    assert error_info.value.exit_code == ExitCode.TIMED_OUT


def test_a_reader_ends_with_who_has_asked(tmp_path: Path) -> None:
    """A command that is ended leaves nothing behind that computes for minutes."""
    mark = tmp_path / "pid"
    (tmp_path / "endless.py").write_text(
        f"import os, time\n\n\ndef make(batch):\n    open({str(mark)!r}, 'w').write(str(os.getpid()) + '.')\n"
        "    time.sleep(1000)\n"
    )
    code = "from vgpud.predict import entry; entry.read(entry.Asked('endless:make'))"
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env) as asking:
        wait_for("the reader", lambda: mark.exists() and mark.read_text().endswith("."), 60)
        asking.terminate()
    wait_for("its end", lambda: not Path("/proc", mark.read_text()[:-1]).exists(), 20)


def test_an_entry_point_that_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "MEMORY_BYTES", 1 << 30)
    assert "MemoryError" in refusal("tests.predict.models:hungry")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("missing.onnx", "there is no file 'missing.onnx'"),
        ("weights.pt", "has only weights, and loading it could run code"),
        ("notes.txt", "is not a readable model: MODEL must be an ONNX file"),
        ("a b:c", "is not a readable model"),
        ("os:system;x", "is not a readable model"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
    ],
)
def test_models_that_are_none(model: str, words: str) -> None:
    assert words in refusal(model)


# ---- steps of a dry run ----


def test_the_loss_is_the_models_own_or_that_of_its_answer() -> None:
    scores = torch.randn(4, 3, 10, requires_grad=True)
    assert dry_steps.find_loss(scores).dim() == 0
    assert dry_steps.find_loss((torch.arange(3), scores)).item() == dry_steps.find_loss(scores).item()
    own = scores.mean()
    assert dry_steps.find_loss({"loss": own, "logits": scores}).item() == own.item()
    assert dry_steps.find_loss(scores[0, 0]).item() == scores[0, 0].mean().item()
    with pytest.raises(GraphError, match="nothing in the model's answer can be trained"):
        dry_steps.find_loss(scores.detach())


def test_every_optimizer_that_can_be_named_can_be_made() -> None:
    model = torch.nn.Linear(2, 2)
    for name in set(memory.STATES) - {"none"}:
        assert dry_steps._make_optimizer(name, model).param_groups
