"""checkpoint_helper.py, which stops at the steps that a test names: started in its place by stopping_daemon.py."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def load(path: Path) -> Any:
    """A module by its path: this interpreter has no search path of ours."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


steps = load(HERE / "steps.py")
helper = load(HERE.parents[2] / "vgpud" / "devices" / "checkpoint_helper.py")
FOLDER = Path(os.environ["VGPU_SIM_DIR"]).parent


class StoppingDriver(helper.Driver):  # type: ignore[misc]
    """lock-begins, lock-ends and so on, before and after each of the driver's calls."""

    def _step(self, name: str, first: int = 0) -> None:
        steps.pass_step(FOLDER, f"{name}-begins", str(self.pid))
        super()._step(name, first)
        steps.pass_step(FOLDER, f"{name}-ends", str(self.pid))


def settle(driver: StoppingDriver) -> None:
    steps.pass_step(FOLDER, "settle-begins", str(driver.pid))
    helper_settle(driver)


helper_settle, helper.settle = helper.settle, settle
helper.Driver = StoppingDriver
sys.exit(helper.main(sys.argv[1:]))
