"""The documents say what is: their links and file names lead somewhere, what they quote is what the code says."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from tests.rules.tree import ROOT, source_files
from vgpud.config import Config
from vgpud.oci.request import RequestError, parse_request
from vgpud.view.slice_tables import slices_grid

DOCUMENTS = [name for name in source_files(".md") if not name.startswith("docker/wheels")]
#: folders of the repository; a name in backticks that begins so must be there
OURS = ("benchmarks/", "docker/", "docs/", "models/", "protos/", "shim/", "tests/", "tools/", "vgpud/")
ROW = re.compile(r"^\| `(VGPU[^`]*)` \| (.+) \|$", re.MULTILINE)
#: a file and what it defines, as the journeys of ARCHITECTURE.md name them: `shim/gate/gate.c: vg_gate_enter`
NAMED = re.compile(r"`([\w./-]+\.(?:c|h|py)): ([\w.]+)`")
LINES_MAX = {"README.md": 170, "ARCHITECTURE.md": 250}
WIDTH_MAX = 100
JOURNEYS = ("A launch", "An allocation", "A live resize", "`docker run`", "`vgpu submit`")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_and_file_names_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    linked = [(ROOT / name).parent / link for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", text)]
    named = [ROOT / word for word in re.findall(r"`([\w./-]+)`", text) if word.startswith(OURS)]
    assert not [str(path) for path in (*linked, *named) if not path.exists()]


def test_no_figure_is_left_to_be_filled_in() -> None:
    """PART_INSIDE % where a number belongs."""
    left = [(name, word) for name in DOCUMENTS for word in re.findall(r"[A-Z]+_[A-Z]+ %", (ROOT / name).read_text())]
    assert not left


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_headings_lead_somewhere(name: str) -> None:
    here = ROOT / name
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", here.read_text())
    targets = [(here.parent / file if file else here, anchor) for file, anchor in links]
    assert not [f"{path}#{anchor}" for path, anchor in targets if anchor not in headings(path)]


@pytest.mark.parametrize("name", sorted(LINES_MAX))
def test_entrance_documents_are_short(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LINES_MAX[name]


def test_lines_of_the_design_are_readable() -> None:
    """At most WIDTH_MAX characters; tables may be wider."""
    wide = []
    for name in ("ARCHITECTURE.md", *(name for name in DOCUMENTS if name.startswith("docs/design/"))):
        lines = enumerate((ROOT / name).read_text().splitlines(), 1)
        wide += [f"{name}:{n}" for n, line in lines if len(line) > WIDTH_MAX and not line.startswith("|")]
    assert not wide


def defines(source: str, is_python: bool, name: str) -> bool:
    """Whether a source defines this function, class or constant; of a method `Class.method` both."""
    if not is_python:  # the line of a definition, or the macro that makes it, begins in the first column
        return re.search(rf"^\w.*\b{name}\b[(,]", source, re.MULTILINE) is not None
    patterns = rf"^ *(?:async )?(?:def|class) {{}}\b|^{name}\b.*="
    return all(re.search(patterns.format(part), source, re.MULTILINE) for part in name.split("."))


def test_functions_that_are_named_exist() -> None:
    missing = []
    for name in DOCUMENTS:
        for file, function in NAMED.findall((ROOT / name).read_text()):
            path = ROOT / file
            if not path.is_file() or not defines(path.read_text(), file.endswith(".py"), function):
                missing.append(f"{name} names {file}: {function}")
    assert not missing, "\n".join(missing)


def test_a_planted_function_is_missed() -> None:
    source = (ROOT / "vgpud/core/slices/admission.py").read_text()
    assert defines(source, True, "place") and not defines(source, True, "placed")
    source = (ROOT / "cuda_hook.c").read_text()
    assert defines(source, False, "cuLaunchKernel") and not defines(source, False, "vg_gate_enter")


@pytest.mark.parametrize("title", JOURNEYS)
def test_journeys_name_files_and_functions(title: str) -> None:
    """A numbered list of steps, each with a file and what is called there."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    steps = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(steps) >= 4 and all(NAMED.search(step) for step in steps)


def test_architecture_has_a_row_for_each_package() -> None:
    tops = {name.split("/")[1] for name in source_files("", under="vgpud/") if name.count("/") > 1}
    inner = {name.split("/")[2] for name in source_files(".py", under="vgpud/core/") if name.count("/") > 2}
    folders = {name.split("/")[1] for name in source_files("", under="shim/") if name.count("/") > 1}
    wanted = {f"vgpud/{top}/" for top in tops} | {f"vgpud/core/{name}/" for name in inner} | {"vgpud/daemon/jobs/"}
    wanted |= {f"shim/{folder}/" for folder in folders}
    rows = re.findall(r"^\| (.+?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert not wanted - {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize(("request_", "line"), ROW.findall((ROOT / "docs/containers.md").read_text()))
def test_refusals_are_quoted_as_they_are(request_: str, line: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(request_.split(), {}, Config().container_limits)
    assert str(caught.value) == line


def test_the_table_of_slices_is_as_shown() -> None:
    texts = ((ROOT / name).read_text() for name in DOCUMENTS)
    shown = [line for text in texts for line in re.findall(r"^SLICE .*CONTAINER$", text, re.MULTILINE)]
    titles = slices_grid([], datetime.datetime.now(datetime.timezone.utc)).titles
    assert shown and all(line.split() == [title.lstrip(">") for title in titles] for line in shown)
