"""The documents say what is: their links and file names lead somewhere, what they quote is what the code says."""

from __future__ import annotations

import datetime
import re

import pytest

from tests.rules.tree import ROOT, tracked
from vgpud.cli.common.tables import slices_grid
from vgpud.config import Config
from vgpud.oci.request import RequestError, parse_request

DOCUMENTS = [name for name in tracked(".md") if not name.startswith("docker/wheels")]
#: folders of the repository; a name in backticks that begins so must be there
OURS = ("benchmarks/", "docker/", "docs/", "protos/", "shim/", "tests/", "tools/", "vgpud/")
ROW = re.compile(r"^\| `(VGPU[^`]*)` \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_and_file_names_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    linked = [(ROOT / name).parent / link for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", text)]
    named = [ROOT / word for word in re.findall(r"`([\w./-]+)`", text) if word.startswith(OURS)]
    assert not [str(path) for path in (*linked, *named) if not path.exists()]


@pytest.mark.parametrize(("request_", "line"), ROW.findall((ROOT / "docs/containers.md").read_text()))
def test_refusals_are_quoted_as_they_are(request_: str, line: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(request_.split(), {}, Config().container_limits)
    assert str(caught.value) == line


def test_the_table_of_slices_is_as_shown() -> None:
    shown = re.findall(r"^SLICE .*CONTAINER$", (ROOT / "README.md").read_text(), re.MULTILINE)
    titles = slices_grid([], datetime.datetime.now(datetime.timezone.utc)).titles
    assert shown and all(line.split() == [title.lstrip(">") for title in titles] for line in shown)
