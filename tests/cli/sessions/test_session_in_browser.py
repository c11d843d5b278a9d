"""Sessions in a real browser: what a session's page may ask for, and JupyterLab with a cell that survives restarts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.keys import Keys

from tests.cli.sessions.world import BUILT, Console, start, wait_until
from tests.console.browser import Browser, needs_chromium
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.console.login.broker import link, link_socket_path

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

#: what a script gets: the answer's first characters, or that it gets nothing
ASK = """
const [url, done] = arguments;
fetch(url, {headers: {"HX-Request": "true"}}).then(async (a) => done(a.status + " " + (await a.text()).slice(0, 60)),
  () => done("nothing"));
"""
SOCKET = """
const [url, done] = arguments;
let socket;
try { socket = new WebSocket(url); } catch { done("nothing"); }
socket.onerror = () => done("nothing");
socket.onopen = () => socket.send("hello");
socket.onmessage = (message) => done(message.data);
"""
FRAME = """
const [url, done] = arguments, frame = document.createElement("iframe");
frame.src = url;
frame.onload = () => {
  try { done(frame.contentDocument.querySelector("main") ? "read" : "nothing"); } catch { done("nothing"); }
};
document.body.append(frame);
"""


@pytest.fixture(autouse=True)
def chromium() -> None:
    needs_chromium()


def log_in(browser: Browser, console: Console) -> None:
    browser.log_in(link(link_socket_path(console.runtime), 10))


def test_a_sessions_page_reads_its_session_and_not_the_console(console: Console, session: str) -> None:
    with Browser(console.url) as browser:
        log_in(browser, console)
        ask = browser.driver.execute_async_script
        assert ask(ASK, "/queue").startswith("200 "), "the console's own pages do"
        browser.driver.get(console.url + session)
        assert ask(ASK, f"{session}data").startswith('200 {"path":')
        socket_url = f"{console.url.replace('http', 'ws')}{session}socket"
        assert ask(SOCKET, socket_url) == "hello"
        for path in ("/", "/queue", "/live/queue", "/session/999/", f"{console.url}/queue"):
            assert ask(ASK, path) == "nothing", path
        assert ask(ASK, f"{session}redirect?to=/queue") != "200", "a policy's path is not checked after a redirect"
        assert "<" not in ask(ASK, f"{session}redirect?to=/queue")
        assert ask(SOCKET, socket_url.replace(session, "/session/999/")) == "nothing"
        assert ask(FRAME, "/queue") == "nothing"
        window = "const w = window.open('/queue'); setTimeout(() => { try { arguments[0](w && w.document.querySelector("
        window += "'main') ? 'read' : 'nothing'); } catch { arguments[0]('nothing'); } }, 1500)"
        assert ask(window) == "nothing", "a window of the console's is none of the page's"


@pytest.mark.skipif(not shutil.which("jupyter-lab"), reason="JupyterLab is not installed: pip install jupyterlab")
def test_jupyterlab_keeps_a_cell_over_restarts(
    real: Any, system: OwnSystem, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell's output, the kernel's variables, with a quarter of a device; daemon and console are restarted."""
    root = ["--allow-root"] if os.geteuid() == 0 else []
    monkeypatch.setenv("HOME", str(short_dir))
    job_id = start(real, "-C", str(short_dir), "jupyter", *root)
    base = f"/session/{job_id}/"
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    consoles = [Console(system.host, runtime)]
    url = f"{consoles[0].url}{base}lab/tree/kept.ipynb"
    (short_dir / "kept.ipynb").write_text(
        json.dumps(make_notebook("x = 6 * 7; print('answer', x)", "print('still', x)"))
    )
    try:
        with Browser(consoles[0].url) as browser:
            log_in(browser, consoles[0])
            browser.driver.get(url)  # loaded again by itself until the notebook is there
            run_cell(browser, 0, "answer 42")
            save(browser)
            consoles[0].stop()
            assert system.daemon
            system.daemon.stop()
            system.start_daemon()
            consoles.append(Console(system.host, runtime, "--listen", consoles[0].address))
            log_in(browser, consoles[1])
            browser.driver.get(url)
            wait_for(lambda: "answer 42" in read_page(browser))
            run_cell(browser, 1, "still 42")
    finally:
        for console in consoles:
            console.stop()
        shutil.rmtree(runtime)


def wait_for(look: Callable[[], Any]) -> None:
    """Elements may be replaced while they are looked at."""

    def look_again() -> Any:
        with contextlib.suppress(WebDriverException):
            return look()

    wait_until(look_again)


def make_notebook(*sources: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**cell, "id": f"c{number}", "source": source} for number, source in enumerate(sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def read_page(browser: Browser) -> str:
    """All text of the page: what a cell prints is not in its source."""
    return str(browser.driver.execute_script("return document.body.innerText"))


def run_cell(browser: Browser, number: int, result: str) -> None:
    """When its kernel is there; again if the page was still being drawn and took no keys."""
    wait_for(lambda: browser.all(".jp-Notebook-ExecutionIndicator[data-status=idle]"))

    def has_printed() -> bool:
        if result in read_page(browser):
            return True
        browser.all(".jp-Notebook .jp-CodeCell .cm-content")[number].click()
        browser.driver.switch_to.active_element.send_keys(Keys.SHIFT + Keys.ENTER)
        time.sleep(2)
        return False

    wait_for(has_printed)


def save(browser: Browser) -> None:
    """The dialog of a new notebook's name is accepted."""
    browser.driver.switch_to.active_element.send_keys(Keys.CONTROL + "s")
    wait_for(lambda: _is_saved(browser))


def _is_saved(browser: Browser) -> bool:
    for button in browser.all(".jp-Dialog .jp-mod-accept"):
        button.click()
    return not browser.all(".jp-mod-dirty") and not browser.all(".jp-Dialog")
