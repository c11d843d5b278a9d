"""Builds one abi3 wheel: `vgpud._shim` (cffi), the plain libraries under vgpud/lib (the list: shim/build_shim.py), and
the documents of docs/ under vgpud/docs.

Everything declarative is in pyproject.toml. The libraries are no setuptools Extension on purpose: they must not get
Python's link flags nor a name with an ABI tag (DESIGN D1).
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "shim"))
import build_shim  # noqa: E402


class BuildLibraries(Command):
    """`build_libraries`: a step of `build` (setuptools SubCommand) that compiles build_shim.targets()."""

    description = "compile libvgpu.so, libvgpu-ml.so and the simulated device"
    user_options = [("build-lib=", "b", "directory to build into")]
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def _library_folder(self) -> Path:
        """vgpud/lib of the source tree for `pip install -e`, of the build directory otherwise."""
        base = ROOT if self.editable_mode else Path(str(self.build_lib)).resolve()
        return base / "vgpud" / "lib"

    def run(self) -> None:
        """Warnings are errors for those who work on the sources, and for tools/build_wheel.py, which takes their
        objects: a user's compiler may be newer than ours."""
        extra = [] if self.editable_mode or "VGPU_OBJECTS" in os.environ else ["-Wno-error"]
        for name in build_shim.targets():
            build_shim.build_target(name, self._library_folder(), extra)

    def get_outputs(self) -> list[str]:
        names = [*build_shim.targets(), *(copy for copies in build_shim.DATA.values() for copy in copies)]
        return [str(Path(str(self.build_lib)) / "vgpud" / "lib" / name) for name in names]

    def get_output_mapping(self) -> dict[str, str]:
        """An editable install writes into the source tree itself: nothing has to be linked to."""
        return {}

    def get_source_files(self) -> list[str]:
        sources = {source for files, _ in build_shim.targets().values() for source in files}
        headers = {str(path.relative_to(ROOT)) for path in (ROOT / "shim").rglob("*.[hS]")}
        return sorted(sources | headers)


class BuildDocuments(Command):
    """`build_documents`: a step of `build` (setuptools SubCommand) that copies docs/**/*.md to where `vgpu docs` looks.

    An editable install needs no copy: `vgpu docs` finds those of the clone.
    """

    description = "copy the documents into the package"
    user_options = [("build-lib=", "b", "directory to build into")]
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def _copies(self) -> dict[str, str]:
        """Copy -> its source, relative to the root."""
        folder = Path(str(self.build_lib)) / "vgpud"
        names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
        return {} if self.editable_mode else {str(folder / name): name for name in names}

    def run(self) -> None:
        shutil.rmtree(Path(str(self.build_lib)) / "vgpud" / "docs", ignore_errors=True)  # pages of an earlier build
        for copy, name in self._copies().items():
            Path(copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy)

    def get_outputs(self) -> list[str]:
        return list(self._copies())

    def get_output_mapping(self) -> dict[str, str]:
        return self._copies()

    def get_source_files(self) -> list[str]:
        return list(self._copies().values())


build.sub_commands = [*build.sub_commands, ("build_libraries", None), ("build_documents", None)]

ADDRESSES = runpy.run_path(str(ROOT / "vgpud" / "project" / "addresses.py"))["list_addresses"]()

setup(
    project_urls=ADDRESSES,
    cffi_modules=["shim/build_shim.py:ffibuilder"],
    cmdclass={"build_libraries": BuildLibraries, "build_documents": BuildDocuments},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
