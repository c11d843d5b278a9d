"""`vgpu predict`, and what `vgpu submit --predict` fills in and says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from tests.predict.test_onnx import convolutional, file, helper, perceptron, weight
from tests.rules.tree import ROOT
from vgpud.api import elastic_messages
from vgpud.cli.common.options import Settings
from vgpud.cli.jobs import predicted_options
from vgpud.cli.main import invoke
from vgpud.cli.predict import dry_model, predict_run, run
from vgpud.errors import CliError
from vgpud.predict import dataset, dry_device, hardware, looked, memory, train_file
from vgpud.predict.dry_run import Counts, DryRun
from vgpud.predict.interpreter import Torch
from vgpud.v1alpha1 import vgpud_pb2 as pb

GIVEN: dict[str, Any] = {
    "predict": None, "batch": None, "optimizer": None, "precision": None, "dims": (), "predictor": None,
    "devices": (), "gpus": None, "workers": None, "mem": None, "mem_min": None, "mem_max": None,
}  # fmt: skip


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    return perceptron(tmp_path / "mlp.onnx")


@pytest.fixture
def cnn(tmp_path: Path) -> Path:
    return convolutional(tmp_path / "cnn.onnx")


@pytest.fixture
def on_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's device is one."""
    monkeypatch.setattr(run, "find_device_name", lambda settings, wanted: "NVIDIA H100 80GB HBM3")


def run_cli(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = invoke([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_choices_are_those_that_are_known() -> None:
    """They are written twice, so that `vgpu submit --help` imports nothing of prediction."""
    assert tuple(memory.STATES) == run.OPTIMIZERS
    assert hardware.PRECISIONS == run.PRECISIONS


def test_a_model_of_a_family_that_is_known(capsys: pytest.CaptureFixture[str], mlp: Path) -> None:
    code, out, err = run_cli(capsys, "predict", mlp, "--gpu", "a100-40g", "--batch", 256)
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["WHAT", "PREDICTED", "FROM", "TO", "BY"]
    assert [line[0] for line in lines[1:]] == ["utilisation", "SM", "memory"]
    assert lines[1][-1] == lines[3][-1] == "predictor"
    assert "mlp of 9.6k parameters, batch 256, adam, fp32, on one a100-40g" in err


def test_json(capsys: pytest.CaptureFixture[str], mlp: Path) -> None:
    code, out, _err = run_cli(capsys, "predict", mlp, "--gpu", "h200", "--batch", 128, "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["gpu"], found["batch"], found["precision"], found["family"]) == ("h200", 128, "fp32", "mlp")
    assert found["in_range"] is True and found["unknown_operations"] == []
    for name in ("utilisation", "memory_bytes"):
        assert 0 <= found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    assert found["features"]["peak_flops"] == 67e12 and found["features"]["element_bytes"] == 4
    _code, out, _err = run_cli(capsys, "predict", mlp, "--gpu", "h200", "--precision", "bf16", "-o", "json")
    found = json.loads(out)
    assert found["features"]["peak_flops"] == 989e12 and found["features"]["element_bytes"] == 2


def test_out_of_range_utilisation_is_analytic_and_memory_from_the_graph(
    capsys: pytest.CaptureFixture[str], cnn: Path
) -> None:
    code, out, err = run_cli(capsys, "predict", cnn, "--gpu", "h200")
    assert code == 0
    rows = [line.split() for line in out.splitlines()[1:]]
    assert rows[0][0] == "utilisation" and rows[0][1].endswith("%") and rows[0][-1] == "analytic"
    assert rows[1] == ["SM", "activity", "-", "-", "-", "out", "of", "range"]
    assert rows[2][0] == "memory" and rows[2][-1] == "graph"
    assert "out of range" in err and "convolutions" in err
    _code, out, _err = run_cli(capsys, "predict", cnn, "--gpu", "h200", "-o", "json")
    found = json.loads(out)
    assert found["in_range"] is False and found["memory_by"] == "graph" and found["utilisation_by"] == "analytic"
    assert 0 < found["utilisation"]["low"] < found["utilisation"]["value"] < found["utilisation"]["high"] <= 1


def test_the_first_example_of_the_help_answers_with_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _code, out, _err = run_cli(capsys, "predict", "--help")
    example = next(line for line in out.splitlines() if line.strip().startswith("vgpu predict ")).split()[1:]
    monkeypatch.chdir(tmp_path)
    (source,) = re.findall(
        r"```python\n(import torch +# net\.py.*?)```", (ROOT / "docs/predict.md").read_text(), re.DOTALL
    )
    (tmp_path / "net.py").write_text(source)
    code, out, err = run_cli(capsys, *example[: example.index("function")])
    assert code == 0, err
    rows = [line.split() for line in out.splitlines()[1:]]
    assert all(any(letter.isdigit() for letter in row[1]) for row in (rows[0], rows[-1]))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["resnet5.onnx", "--gpu", "h200"], "there is no file 'resnet5.onnx', did you mean 'resnet50.onnx'?"),
        (["resnet50.onnx", "--gpu", "h20O"], "is not in the table of devices, did you mean 'h20', 'h200' or 'gh200'?"),
        (["resnet50.onnx", "--gpu", "a100-40"], "is not in the table of devices, did you mean 'a100-40g'?"),
        (["resnet50.onnx", "--gpu", "RTX 2080 t"], "is not in the table of devices, did you mean 'rtx-2080-ti'?"),
        (["nett:make", "--gpu", "h200"], "there is no module 'nett', did you mean 'net:make'?"),
        (["net:mak", "--gpu", "h200"], "module 'net' has no 'mak', did you mean 'net:make'?"),
        (["net.py:make", "--gpu", "h200"], "write the module without .py, as in net:make"),
        (["net", "--gpu", "h200"], "name its function that returns the model, as in net:FUNCTION"),
        (["net.py", "--gpu", "h200"], "name its function that returns the model, as in net:FUNCTION"),
    ],
)
def test_near_names_are_suggested(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet50.onnx").touch()
    (tmp_path / "net.py").write_text("raise SystemExit\n\n\ndef make(batch): ...\n")  # which is not run
    code, out, err = run_cli(capsys, "predict", *args)
    assert code != 0 and out == "" and words in err and err.count("\n") == 1


def test_a_terminal_is_told_what_takes_long(
    capsys: pytest.CaptureFixture[str], mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in Python, of which PyTorch is imported; a script that reads stderr gets errors alone."""
    monkeypatch.chdir(tmp_path)
    said = "vgpu: net:make is traced by PyTorch"
    _code, _out, err = run_cli(capsys, "predict", "net:make", "--gpu", "h200")
    assert said not in err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for model, is_said in (("net:make", True), (str(mlp), False)):
        _code, _out, err = run_cli(capsys, "predict", model, "--gpu", "h200")
        assert err.startswith(said) == is_said
    _code, _out, err = run_cli(capsys, "predict", "net:make", "--gpu", "h200", "-o", "json")
    assert said not in err


def test_an_operation_that_training_never_saw_is_out_of_range(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The shipped predictor has seen linear layers and ReLU."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Elu", ["h"], ["g"])]
    nodes.append(helper.make_node("MatMul", ["g", "v"], ["y"]))
    path = file(tmp_path / "m.onnx", nodes, {"x": (64, 512)}, [weight("w", 512, 512), weight("v", 512, 512)])
    code, out, err = run_cli(capsys, "predict", path, "--gpu", "a100-40g")
    assert code == 0 and "out of range: the model has smooth activation" in err and "analytic" in out


def test_unknown_operations_are_out_of_range_whatever_the_sizes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Gelu9", ["h"], ["y"], domain="ours"),
    ]
    path = file(tmp_path / "m.onnx", nodes, {"x": (64, 512)}, [weight("w", 512, 512)])
    code, _out, err = run_cli(capsys, "predict", path, "--gpu", "a100-40g")
    assert code == 0 and "out of range: the cost of ours.Gelu9 is not known" in err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["missing.onnx", "--gpu", "h200"], 4, "there is no file 'missing.onnx'"),
        (["weights.pt", "--gpu", "h200"], 2, "has only weights, and loading it could run code"),
        (["x.onnx", "--gpu", "abacus"], 4, "device 'abacus' is not in the table of devices"),
        (["x.onnx", "--batch", "0"], 2, "0 is not in the range"),
        (["x.onnx", "--dim", "seq"], 2, "'seq' is not a dimension: write for example seq=128"),
        (["x.onnx", "--dim", "seq=0"], 2, "'seq=0' is not a dimension"),
        (["x.onnx", "--optimizer", "magic"], 2, "'magic' is not one of"),
    ],
)
def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str], args: list[str], code: int, words: str) -> None:
    found, out, err = run_cli(capsys, "predict", *args)
    assert (found, out) == (code, "")
    assert words in err and err.count("\n") == 1 and err.startswith("vgpu: ")


def test_without_a_daemon_the_device_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mlp: Path
) -> None:
    code, _out, err = run_cli(capsys, "predict", mlp, "--host", f"unix://{tmp_path}/none.sock")
    assert code == 3 and "give one with --gpu, as in --gpu h200" in err and err.count("\n") == 1


def test_train_is_a_command_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _err = run_cli(capsys, "predict", "train", "--help")
    assert code == 0 and "vgpu predict train" in out and "--data" in out


@pytest.mark.parametrize(
    ("out_path", "words"),
    [
        ("none/o.json", "none is not a directory"),
        (".", "it is a directory"),
        ("/dev/null", "/dev/null: it is not a regular file"),
    ],
)
def test_where_no_model_can_be_written_none_is_trained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, out_path: str, words: str
) -> None:
    (tmp_path / "rows.csv").write_text(",".join(dataset.COLUMNS) + "\n")
    monkeypatch.setattr(train_file, "train_model", lambda *_: pytest.fail("it was trained"))
    code, _out, err = run_cli(capsys, "predict", "train", "--data", tmp_path / "rows.csv", "--out", tmp_path / out_path)
    assert code == 2 and words in err and err.count("\n") == 1


# ---- vgpu submit --predict ----


class Node:
    """Two sorts of devices."""

    def __init__(self, settings: Settings) -> None: ...

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *error: object) -> None: ...

    def all(self, _call: object) -> list[pb.Device]:
        return [pb.Device(index=i, uuid=f"GPU-{i}", name=name) for i, name in enumerate(["A100", "H200", "H200"])]


def test_which_device_it_is_predicted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("vgpud.cli.common.client.Client", Node)
    assert run.find_device_name(Settings(), ("1", "GPU-2")) == "H200"
    for wanted, words in (
        (None, "A100, H200: name one with --gpu"),
        ((), "A100, H200: choose with --device"),
        (("0", "1"), "A100, H200: choose with --device"),
        (("7",), "no such device: choose with --device"),
    ):
        with pytest.raises(CliError, match=words):
            run.find_device_name(Settings(), wanted)


def test_nothing_is_filled_in_without_a_model() -> None:
    given = {**GIVEN, "gpus": 250}
    assert predicted_options.fill(Settings(), given) == ""
    assert (given["gpus"], given["mem"], given["prediction"]) == (250, None, None)
    assert "predict" not in given and "precision" not in given
    with pytest.raises(click.UsageError, match="--dim describes a model: give --predict MODEL"):
        predicted_options.fill(Settings(), {**GIVEN, "dims": (("a", 1),)})


@pytest.mark.usefixtures("on_h100")
def test_gpus_and_memory_are_filled_in_and_said(mlp: Path) -> None:
    given = {**GIVEN, "predict": str(mlp), "batch": 512}
    line = predicted_options.fill(Settings(), given)
    found = given["prediction"]
    assert isinstance(found, pb.Prediction) and not found.out_of_range
    assert (
        given["gpus"] % 50 == 0
        and found.utilisation.value * 1000 <= given["gpus"] < found.utilisation.value * 1000 + 50
    )
    assert given["mem"] % (64 << 20) == 0 and 0 <= given["mem"] - found.mem_bytes.high < 64 << 20
    assert f"--gpus {given['gpus'] / 1000:g}; memory" in line and f"--mem {given['mem'] >> 20}M" in line
    assert "of one h100" in line and "\n" not in line
    shown = f"{found.utilisation.value:.1%}"  # with the digit by which --gpus may be the next twentieth
    assert f"uses {shown} of one" in line and f"({found.utilisation.low:.1%} to {found.utilisation.high:.1%})" in line
    assert found.features["batch"] == 512 and found.device == "h100"


@pytest.mark.usefixtures("on_h100")
@pytest.mark.parametrize("name", ["d" * 150 + "/" + "é" * 100, "ev\x1bil"])
def test_the_daemon_takes_the_name_of_any_model(mlp: Path, name: str) -> None:
    """It keeps 200 bytes that can be printed."""
    path = mlp.parent / f"{name}.onnx"
    path.parent.mkdir(exist_ok=True)
    mlp.rename(path)
    given = {**GIVEN, "predict": str(path)}
    predicted_options.fill(Settings(), given)
    kept = elastic_messages.prediction_from(pb.JobSpec(prediction=given["prediction"]))
    assert kept and kept.model.endswith(".onnx")


@pytest.mark.usefixtures("on_h100")
def test_what_the_user_gives_stays(mlp: Path) -> None:
    given = {**GIVEN, "predict": str(mlp), "gpus": (250, 1000), "mem": 1 << 30}
    line = predicted_options.fill(Settings(), given)
    assert given["gpus"] == (250, 1000) and given["mem"] == 1 << 30
    assert "--gpus stays as given" in line and "--mem stays as given" in line
    assert given["prediction"].utilisation.value > 0


@pytest.mark.usefixtures("on_h100")
def test_out_of_range_fills_in_memory_only_and_says_so(cnn: Path) -> None:
    given = {**GIVEN, "predict": str(cnn)}
    line = predicted_options.fill(Settings(), given)
    assert given["gpus"] is None and given["mem"] > 256 << 20
    assert given["prediction"].out_of_range
    assert "out of range" in line and "give --gpus" in line and "from its graph" in line


@pytest.mark.usefixtures("on_h100")
def test_workers_divide_the_batch(mlp: Path) -> None:
    given = {**GIVEN, "predict": str(mlp), "batch": 512, "workers": (4, 8)}
    predicted_options.fill(Settings(), given)
    assert given["prediction"].features["batch"] == 128


@pytest.mark.usefixtures("on_h100")
def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """32 Gi parameters with their gradients and states are half a terabyte."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    big = weight("w", 1, 1)
    del big.dims[:]
    big.dims.extend([1 << 17, 1 << 18])
    path = file(tmp_path / "big.onnx", nodes, {"x": (1, 1 << 17)}, [big])
    with pytest.raises(CliError, match=r"one h100 has 80 GB, too little for .*lower --batch") as error_info:
        predicted_options.fill(Settings(), {**GIVEN, "predict": str(path)})
    assert error_info.value.exit_code == 6


# ---- memory by a dry run ----


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in Python; what it is read as comes from a file, so that PyTorch is not imported."""
    read = looked.look
    file_name = str(perceptron(tmp_path / "mlp.onnx"))

    def look_at_file(model: str, gpu: str, **options: Any) -> looked.Looked:
        found = read(file_name, gpu, **options)
        return replace(found, query=replace(found.query, model=model))

    monkeypatch.setattr(looked, "look", look_at_file)


def run_steps(monkeypatch: pytest.MonkeyPatch, torch: Torch, results: tuple[DryRun, ...], exit_code: int) -> list[Any]:
    """What vgpu starts where this is the interpreter's PyTorch, and the steps end so."""
    asked: list[Any] = []

    def run_dry(command: list[str], *_options: Any, **_settings: Any) -> Any:
        asked.append(json.loads(command[-1]))
        return torch, results, exit_code

    monkeypatch.setattr(dry_model, "find_own_torch", lambda model: torch)
    monkeypatch.setattr(predict_run, "run_dry", run_dry)
    return asked


def took(given_bytes: int) -> DryRun:
    device = dry_device.DEVICES["a100-40g"]
    context = dry_device.find_context_size(device)
    counts = Counts(context.value + given_bytes, 1, 1, 1, 0, 0, 0, 0, 0)
    return DryRun(device, context, counts, (), 3)


@pytest.mark.usefixtures("net")
def test_a_model_that_can_be_run_has_its_memory_from_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run_steps(monkeypatch, Torch("2.13.0", "13.0"), (took(5 << 30),), 0)
    command = ("predict", "net:make", "--gpu", "a100-40g", "--batch", 32, "--optimizer", "sgd", "-o", "json")
    code, out, _err = run_cli(capsys, *command)
    found = json.loads(out)
    assert (code, found["memory_by"]) == (0, "dry_run")
    assert found["memory_bytes"]["value"] == (5 << 30) + took(0).context.value
    assert found["utilisation_by"] == "predictor" or found["in_range"] is False
    assert (asked[0]["model"], asked[0]["batch"], asked[0]["optimizer"]) == ("net:make", 32, "sgd")
    _code, out, err = run_cli(capsys, *command[:-2])
    assert out.splitlines()[-1].endswith("dry run")
    assert "not by a dry run" not in err


@pytest.mark.usefixtures("net")
@pytest.mark.parametrize(
    ("torch", "exit_code", "why"),
    [
        (Torch("2.13.0+cpu", ""), 0, "torch 2.13.0+cpu has no CUDA"),
        (Torch("2.13.0", "13.0"), 1, "its steps ended with exit code 1"),
        (Torch("2.13.0", "13.0"), 0, "its steps used no device"),
    ],
)
def test_where_it_cannot_be_run_the_graph_decides_and_a_line_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, torch: Torch, exit_code: int, why: str
) -> None:
    run_steps(monkeypatch, torch, (), exit_code)
    code, out, err = run_cli(capsys, "predict", "net:make", "--gpu", "a100-40g")
    assert code == 0
    assert f"the memory is not by a dry run: {why}" in err
    assert out.splitlines()[-1].split()[-1] in ("predictor", "graph")
