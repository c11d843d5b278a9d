"""Names of functions, parameters and public attributes are verbs with an object, or nouns: no bare participle or adverb
(`found`, `told`, `beside`) stands alone for a thing that the reader has to guess."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .tree import ROOT, source_files

#: words of the field, which need no noun
ALLOWED = frozenset(
    ["after", "allocated", "bound", "cancelled", "closed", "completed", "done", "drained", "elapsed", "failed"]
    + ["granted", "held", "now", "offered", "requested", "reserved", "shared", "suspended", "used"]
)
_IRREGULAR = (
    "begun bought bound brought built caught chosen done drawn driven fallen felt forgotten found frozen "
    "gone got gotten given grown heard held hidden kept known laid left lent lost made meant met paid proven "
    "ridden risen said seen sent shown slept sold sought stood stuck struck taken "
    "taught thought thrown told torn understood won worn wound written"
)
_ADVERBS = (
    "above again ahead alone already anew apart aside away back before behind below beside better between "
    "beyond down early else elsewhere ever forth forward further hence here inside instead later least less "
    "meanwhile more most never now off often on once out outside seldom soon still then there thus together "
    "twice up upon whole within without worse worst yet"
)
IRREGULAR, ADVERBS = frozenset(_IRREGULAR.split()), frozenset(_ADVERBS.split())
#: end as participles or adverbs do, and are none
NOUNS = frozenset(
    ["bed", "embed", "feed", "need", "red", "seed", "shed", "speed", "weed", "assembly", "family", "reply"]
)
VERBS = frozenset(["apply", "comply", "exceed", "imply", "multiply", "proceed", "rely", "succeed", "supply"])
FOLDERS = ("benchmarks/", "docker/", "integrations/", "models/", "protos/", "shim/", "tests/", "tools/", "vgpud/")
#: not chosen here: made from the API's fields
GENERATED = ("vgpud/client/model.py",)
#: fields of a format: of the database, recordings, reports in JSON, the arbiter's structures in C, options of commands;
#: methods that PyTorch calls
FORMATS = frozenset(
    ["vgpud/core/model.py: Container.started"]
    + [f"vgpud/core/elastic/worker_group.py: WorkerGroup.{name}" for name in ("lost", "stopped")]
    + ["vgpud/core/jobs/events.py: StartFailed.again", "vgpud/core/jobs/events.py: JobDuration.ended"]
    + ["vgpud/core/jobs/events.py: DurationsKnown.known"]
    + [f"vgpud/core/jobs/model.py: Job.{name}" for name in ("attained", "changed")]
    + [f"vgpud/simulate/results.py: Figures.{name}" for name in ("refused", "unfinished")]
    + ["models/arbiter/model.py: SliceParams.paused"]
    + [f"models/arbiter/model.py: Slice.{n}" for n in ("attached", "limited", "noticed", "served", "throttled")]
    + ["models/arbiter/device.py: Device.served"]
    + ["vgpud/cli/jobs/job.py: ls(ended)", "vgpud/cli/predict/predict_train.py: train(out)"]
    + [f"benchmarks/ledger.py: Found.{name}" for name in ("opened", "refused", "unsupported")]
    + ["benchmarks/cifar/train_torch.py: block.Block.forward"]
    + [f"benchmarks/predict/architectures.py: {name}.forward" for name in ("Recurrent", "UNet")]
    + [f"benchmarks/pytorch/published_models.py: {name}.forward" for name in ("Dense", "Encoder", "Residual")]
    + [f"tests/pytorch/cudnn.py: {name}.forward" for name in ("Contracting", "Residual")]
    + [f"tests/pytorch/networks.py: {name}.forward" for name in ("Attending", "Encoder", "Gated", "Patches")]
    + [f"tests/pytorch/networks.py: {name}.forward" for name in ("Plus", "Recurrent", "Segmenting")]
    + [f"tests/pytorch/networks.py: {name}.forward" for name in ("Together", "Translating")]
    + [f"tests/predict/models.py: {name}.forward" for name in ("Choosing", "Recurrent", "Residual", "Words")]
)


def is_bare(name: str) -> bool:
    word = name.strip("_").lower()
    if "_" in word or word in ALLOWED | NOUNS | VERBS:
        return False
    return word in IRREGULAR | ADVERBS or (word.endswith(("ed", "ly")) and len(word) > 3)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = function.args
    rest = [one for one in (given.vararg, given.kwarg) if one]
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest)]


def _attributes(of: ast.ClassDef) -> set[str]:
    """Public ones, constants left out: states are named so everywhere."""
    found: set[str] = set()
    for node in ast.walk(of):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and node in of.body:
                found.add(target.id)
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.add(target.attr)
    return {name for name in found if not name.startswith("_") and not name.isupper()}


def bare_names(node: ast.AST, path: str = "") -> Iterator[str]:
    """Qualified names of functions, parameters (in brackets) and public attributes that are bare."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            own = f"{path}{child.name}"
            if is_bare(child.name):
                yield own
            yield from (f"{own}({name})" for name in _parameters(child) if is_bare(name))
            yield from bare_names(child, f"{own}.")
        elif isinstance(child, ast.ClassDef):
            yield from (f"{path}{child.name}.{name}" for name in sorted(_attributes(child)) if is_bare(name))
            yield from bare_names(child, f"{path}{child.name}.")
        else:
            yield from bare_names(child, path)


def test_no_name_is_a_bare_participle_or_adverb() -> None:
    helpers = [name for name in source_files(".py", under="tests/") if name.count("/") == 1]
    names = [name for name in (*source_files(".py", under=FOLDERS), *helpers, "setup.py") if name not in GENERATED]
    found = {f"{name}: {bare}" for name in names for bare in bare_names(ast.parse((ROOT / name).read_text()))}
    assert not found - FORMATS, "say what it is (a noun), or what is done (a verb and its object)\n" + "\n".join(
        sorted(found - FORMATS)
    )
    assert not FORMATS - found, "these are not there any more"


def test_few_words_stand_alone() -> None:
    assert len(ALLOWED) <= 20


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def found(given, *, beside=1): pass", ["found", "found(given)", "found(beside)"]),
        ("class A:\n made: int\n def __init__(self): self.told = self._kept = 1", ["A.made", "A.told"]),
        ("def find_slice(old_slice, used, is_held): pass", []),
        ("class A:\n class B:\n  def f(self):\n   def ended(): pass", ["A.B.f.ended"]),
        ("class State:\n HELD = 1\n speed: int\n def apply(self, seed): pass", []),
    ],
)
def test_a_planted_name_is_seen(source: str, names: list[str]) -> None:
    assert list(bare_names(ast.parse(source))) == names
