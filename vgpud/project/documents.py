"""The documents that come with the package: in `vgpud/docs` of an installation, in `docs` of a clone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
#: one of the two exists: setup.py makes the first from the second
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
_INDEX = "/README"


@dataclass(frozen=True, slots=True)
class Page:
    """One document. name: its path below the folder, without ".md"; that of a folder's README is the folder's."""

    name: str
    title: str
    path: Path

    def read(self) -> str:
        """The Markdown."""
        return self.path.read_text(encoding="utf-8")


def _page(folder: Path, path: Path) -> Page:
    name = path.relative_to(folder).with_suffix("").as_posix().removesuffix(_INDEX)
    with path.open(encoding="utf-8") as file:
        title = next((line[2:].strip() for line in file if line.startswith("# ")), name)
    return Page(name, title, path)


def list_pages() -> list[Page]:
    """All pages by name, those of folders last; none where the package was built without them."""
    folder = next((each for each in _FOLDERS if (each / "cli.md").is_file()), None)
    found = [_page(folder, path) for path in folder.rglob("*.md")] if folder else []
    return sorted(found, key=lambda page: ("/" in page.name or (page.path.stem == "README"), page.name))


def find_page(name: str, pages: list[Page]) -> Page | None:
    """The page that a message, a link or a user names: limits, docs/limits.md, ../limits.md#sharing."""
    clean = name.partition("#")[0].strip().lstrip("./").removeprefix("docs/").removesuffix(".md").removesuffix(_INDEX)
    return next((page for page in pages if page.name == clean.rstrip("/")), None)
