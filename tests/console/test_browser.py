"""Every page and every action in a real browser, with a daemon, a simulated device and programs: by the owner of what
is shown, by another user, and by root. Without root there is the owner alone.

CONSOLE_PICTURES=docs/console writes the pictures of the documents.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from benchmarks import harness
from tests.daemon.forked import ForkedSystem
from vgpud.cli.demo.private_system import PartError, wait_for
from vgpud.console.login import agent
from vgpud.console.login.broker import link
from vgpud.console.main import link_socket_path

from .browser import Browser, needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = os.geteuid() == 0
#: users of every Debian; without root the owner is the user of these tests
OWNER, OTHER = ((5, "games"), (2, "bin")) if ROOT else ((os.geteuid(), ""), (os.geteuid(), ""))
CONFIG = ['socket_mode = "0666"']
DEVICES = {"devices": "2", "memory_bytes": "80G"}
#: long ones: what computes here is only shown, and each launch takes processor time from the browser
LENGTHS_US = (2000, 20_000)


def as_user(uid: int, work: Callable[[], str]) -> str:
    """What work() returns in a process of this user's."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            agent.become(uid)
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, f"failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert not said.startswith("failed: "), said
    return said


def _others_may_run(path: Path) -> bool:
    """Whether the interpreter can be started by the user of the web server, as it can where vgpud is installed."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


class Scene:
    """A node with programs, jobs and a console."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.system = ForkedSystem(folder / "s", DEVICES, CONFIG)
        self.system.env["VGPU_SIM_KERNELS"] = str(harness.spin_model(folder, LENGTHS_US))
        self.console: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        self.folder.chmod(0o755)
        self.system.__enter__()
        self.system.folder.chmod(0o755)
        work = self.folder / "work"
        work.mkdir()
        work.chmod(0o777)
        load = [str(harness.build("tenants/load.c")), "--seconds", "1000", "--kernel-us"]
        run = self.system.run
        run("train", ["--gpus", "0.5", "--max", "1"], [*load, "20000"])
        run("serve", ["--gpus", "0.2", "--max", "0.6"], [*load, "2000", "--burst", "1", "--gap-us", "8000"])
        run("notebook", ["--gpus", "0.3"], [*load, "2000", "--burst", "1", "--gap-us", "200000"])
        self.system.vgpu("slice", "create", "mine", "--gpus", "0.2", "--owner", str(OWNER[0]))
        self.system.vgpu("queue", "set", "research", "--guarantee", "1", "--limit", "2")
        runtime = self.system.folder / "run"
        command = [sys.executable, "-m", "vgpud.cli.main", "console", "serve", "--runtime-dir", str(runtime)]
        command += ["--listen", "127.0.0.1:0"]
        if ROOT and not _others_may_run(Path(sys.executable)):
            command += ["--user", "root"]
        self.console = subprocess.Popen(command, env=self.system.env, stderr=subprocess.PIPE)
        assert self.console.stderr
        self.url = self.console.stderr.readline().decode().split()[5].rstrip(";")

    def link(self, uid: int) -> str:
        socket_path = link_socket_path(self.system.folder / "run")
        return as_user(uid, lambda: link(socket_path, 10))

    def stop(self) -> None:
        if self.console:
            self.console.terminate()
            self.console.wait(20)
        with suppress(PartError):  # no job runs; those that do survive the daemon
            self.system.vgpu("job", "cancel", "--state", "running,suspended", "--yes")
            wait_for("jobs to end", lambda: "running" not in self.system.vgpu("job", "ls"))
        self.system.stop()


@contextmanager
def stage(name: str, times: dict[str, float]) -> Iterator[None]:
    import time

    began_s = time.monotonic()
    yield
    times[name] = round(time.monotonic() - began_s, 1)


@pytest.fixture
def scene(short_dir: Path) -> Iterator[Scene]:
    needs_chromium()
    made = Scene(short_dir)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_the_console_in_a_browser(scene: Scene) -> None:
    times: dict[str, float] = {}
    with Browser(scene.url) as browser:
        browser.log_in(scene.link(OWNER[0]))
        with stage("owner", times):
            job = as_owner(scene, browser)
        if ROOT:
            with stage("other", times):
                browser.log_in(scene.link(OTHER[0]))
                as_other(browser, job)
            browser.log_in(scene.link(0))
        with stage("admin", times):
            as_admin(browser, job)
        with stage("pages", times):
            all_pages(browser, job)
        log_out(browser)
    print(times)


def as_owner(scene: Scene, browser: Browser) -> int:
    """Submits, holds, releases, resizes, reads the log. Returns the job's number, which still runs."""
    browser.open("/submit")
    work = scene.folder / "work"
    browser.fill("command", "for i in 1 2 3; do echo epoch $i; done; sleep 600")
    browser.one("[name=shell]").click()
    browser.fill("gpus", "9")
    browser.fill("directory", str(work))
    browser.fill("name", "net")
    assert "Refused" in browser.press(".submit-end button")
    browser.quiet("422")
    assert browser.one("[name=name]").get_attribute("value") == "net", "what was written stays"
    browser.fill("gpus", "0.4")
    browser.one("[name=hold]").click()
    assert "was queued" in browser.press(".submit-end button")
    job = int(browser.path().rpartition("/")[2])
    browser.until(lambda: "held" in browser.one(".big").text, "the held job")
    assert f"Job {job} was released." in browser.press("[action$='/release'] button")
    browser.until(lambda: "running" in browser.one(".big").text, "the running job, without a reload")
    browser.until(lambda: "epoch 3" in browser.one(".log").text, "the log, without a reload")
    read_output(browser)
    assert "was queued again" in browser.press("[action$='/requeue'] button", confirm=True)
    browser.until(lambda: "running" in browser.one(".big").text, "the job again")
    browser.until(lambda: browser.open(f"/job/{job}") and browser.all("#live a[href^='/slice/']"), "the job's slice")
    browser.until(lambda: browser.all(".charts canvas"), "curves")
    browser.one("#live a[href^='/slice/']").click()
    browser.until(lambda: browser.path().startswith("/slice/"), "the job's slice")
    assert "and is resized there" in browser.text()
    resize_a_slice(browser)
    clone_as_array(browser, job)
    use_terminal(scene, browser)
    refuse_a_service(browser)
    return job


def refuse_a_service(browser: Browser) -> None:
    """What is wrong with a field is said beside it, and what was written stays."""
    browser.open("/services")
    browser.one("[href='/services/new']").send_keys(Keys.ENTER)
    browser.until(lambda: browser.path() == "/services/new", "the form")
    browser.fill("command", "serve --model 'a b'")
    browser.fill("name", "chat")
    browser.fill("health_http", "health")
    assert "Refused" in browser.press(".submit-end button")
    browser.quiet("422")
    field = browser.one("[name=health_http]")
    assert field.get_attribute("aria-invalid") == "true"
    assert "write it from / on" in browser.one(f"#{str(field.get_attribute('aria-describedby')).split()[0]}").text
    assert browser.one("[name=name]").get_attribute("value") == "chat"
    browser.audit()


def use_terminal(scene: Scene, browser: Browser) -> None:
    """Of a job of the form: keys go in, output comes out in colours, and the keyboard leads out of it again."""
    browser.open("/submit")
    browser.fill("command", "cat")
    browser.one("[name=pty]").click()
    browser.fill("gpus", "0.01")
    browser.fill("directory", str(scene.folder / "work"))
    browser.press(".submit-end button")
    assert browser.path().endswith("/terminal")
    browser.until(lambda: "Joined" in browser.one("#terminal-state").text, "the terminal")
    browser.one("#terminal").click()
    ActionChains(browser.driver).send_keys("caf\u00e9 42", Keys.ENTER).perform()
    browser.until(
        lambda: browser.one(".xterm-rows").text.count("caf\u00e9 42") == 2, "what was typed, and cat's answer"
    )
    browser.quiet()
    browser.audit()
    browser.one("#terminal").click()
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("d").key_up(Keys.CONTROL).perform()
    browser.until(lambda: "has completed" in browser.one("#terminal-state").text, "the end of the job")
    browser.one("#terminal").click()
    held = ActionChains(browser.driver).key_down(Keys.CONTROL).key_down(Keys.SHIFT).send_keys(Keys.ENTER)
    held.key_up(Keys.SHIFT).key_up(Keys.CONTROL).perform()
    assert browser.driver.switch_to.active_element == browser.one("#leave"), "the keyboard is not caught there"


def read_output(browser: Browser) -> None:
    """Follows it, finds words in it by the keyboard, and can be taken along."""
    find = browser.one("[data-find]")
    browser.one("body").send_keys("/")
    assert browser.driver.switch_to.active_element == find
    find.send_keys("epoch ")
    browser.until(lambda: browser.one("[data-count]").text == "3 of 3", "the matches, the last one first")
    find.send_keys(Keys.ENTER)
    assert browser.one("[data-count]").text == "2 of 3"
    assert browser.driver.execute_script("return CSS.highlights.get('found').size") == 3
    assert not browser.one("[data-follow]").is_selected(), "what was found stays in view"
    find.send_keys("9")
    assert browser.one("[data-count]").text == "none"
    assert (browser.one("[download]").get_attribute("href") or "").endswith("/output")


def clone_as_array(browser: Browser, job: int) -> None:
    """A copy of a job with its whole form, as an array, which is one row of the queue until it is unfolded."""
    browser.open(f"/job/{job}")
    browser.one("[href^='/submit?like=']").click()
    browser.until(lambda: browser.path().startswith("/submit"), "the form")
    assert "sleep 600" in (browser.one("[name=command]").get_attribute("value") or "")
    assert browser.one("[name=shell]").is_selected()
    browser.fill("array", "1-3")
    browser.fill("name", "copies")
    browser.fill("gpus", "0.01")
    browser.one("[name=hold]").click()
    first = int(browser.press(".submit-end button").split()[1])
    browser.open("/queue?text=copies")
    browser.until(lambda: "3 held" in browser.one(f"#a{first}").text, "the array's row")
    assert "copies[1-3]" in browser.one(f"#a{first}").text and not browser.all(f"#j{first}")
    browser.one(f"#a{first} .fold").send_keys(Keys.ENTER)
    browser.until(lambda: browser.all(f"#j{first}"), "the array's jobs")
    browser.open(f"/job/{first + 1}")
    assert "was cancelled" in browser.press(f"[action='/job/{first}/cancel'] button", confirm=True)


def resize_a_slice(browser: Browser) -> None:
    """By a slider, by its keys; refused; paused, resumed, and removed."""
    browser.open("/slice/mine")
    slider = browser.one("input[data-for^='max-']")
    for _ in range(4):
        slider.send_keys(Keys.ARROW_RIGHT)
    assert browser.one("[name=max]").get_attribute("value") == "0.4"
    assert "was resized" in browser.press(".resize button")
    browser.until(lambda: "maximum 0.4" in browser.one("#live").text, "the new maximum, without a reload")
    browser.fill("min", "0.95")
    assert "Refused: " in browser.press(".resize button")
    assert "is paused" in browser.press("[action$='/pause'] button", confirm=True)
    browser.until(lambda: browser.all("[action$='/resume'] button"), "the button of the new state")
    assert "continues" in browser.press("[action$='/resume'] button")
    assert "was removed" in browser.press("[action$='/remove'] button", confirm=True)
    assert browser.path() == "/"


def as_other(browser: Browser, job: int) -> None:
    """Sees nothing of others, and changes nothing."""
    text = browser.open("/")
    assert "notebook" not in text
    assert "None that you may see" in text
    assert "No job like this." in browser.open("/queue")
    assert "does not belong to user" in browser.open(f"/job/{job}")
    browser.quiet("403")
    assert "does not belong to user" in browser.open("/slice/train")
    browser.quiet("403")
    browser.open("/quotas")
    browser.all("details.edit")[-1].find_element("tag name", "summary").click()
    browser.one("#name-new").send_keys("mine")
    assert "only admins may do this" in browser.press("form[aria-label='A new queue'] button")
    browser.one("a[href='/']").click()
    browser.until(lambda: browser.all(".device h3 a"), "devices")
    browser.one(".device h3 a").click()
    browser.until(lambda: browser.all("#reason"), "the device")
    browser.fill("reason", "mine")
    assert "only admins may do this" in browser.press("[action$='/drain'] button", confirm=True)


def as_admin(browser: Browser, job: int) -> None:
    """Root, or the owner of a daemon: everything of every user."""
    text = browser.open("/")
    assert "notebook" in text
    browser.until(lambda: browser.all(".u0[width], .u1[width], .u2[width], .u3[width]"), "use in the bars")
    browser.one(".device h3 a").click()
    browser.until(lambda: browser.all("#reason"), "the device")
    browser.fill("reason", "fan <b>broken</b>")
    assert "is drained" in browser.press("[action$='/drain'] button", confirm=True)
    assert "fan <b>broken</b>" in browser.open("/"), "an alert"
    assert browser.all(".alerts time")
    browser.click_until(".alerts button", lambda: is_dismissed(browser), "no alert, without a reload")
    browser.one("[action='/alerts/restore'] button").click()
    browser.until(lambda: browser.all(".alerts a"), "the alert again")
    browser.one(".alerts a").click()
    browser.until(lambda: browser.all("[action$='/undrain']"), "the drained device")
    assert "offered again" in browser.press("[action$='/undrain'] button")
    browser.open("/quotas")
    browser.all("details.edit")[-1].find_element("tag name", "summary").click()
    browser.one("#name-new").send_keys("team")
    browser.one("#guarantee-new").send_keys("0.5")
    assert "Queue team was saved." in browser.press("form[aria-label='A new queue'] button")
    summaries = {found.text: found for found in browser.all("details.edit summary")}
    summaries["team"].click()
    assert "was removed" in browser.press("details[open] [action$='/remove'] button", confirm=True)
    browser.open(f"/job/{job}")
    browser.until(lambda: "epoch 3" in browser.one(".log").text, "the log of another user's job")
    waiting = submit(browser, "true", "2")
    browser.until(lambda: "pending" in browser.one(".big").text, "a job that waits")
    browser.fill("gpus", "1.5")
    assert f"Job {waiting} was changed." in browser.press("[action$='/change'] button")
    browser.until(lambda: "1.5 GPUs" in browser.one(".job-side .facts").text, "the new size")
    assert f"Job {waiting} is held." in browser.press("[action$='/hold'] button")
    assert f"Job {waiting} was cancelled." in browser.press("[action$='/cancel'] button", confirm=True)
    assert "cancelled" in browser.one(".big").text
    what_if(browser)


def is_dismissed(browser: Browser) -> bool:
    return "1 dismissed" in browser.text() and not browser.all(".alerts")


def submit(browser: Browser, command: str, gpus: str) -> int:
    browser.open("/submit")
    browser.fill("command", command)
    browser.fill("gpus", gpus)
    browser.fill("directory", "/tmp")
    return int(browser.press(".submit-end button").split()[1])


def what_if(browser: Browser) -> None:
    number = submit(browser, "true", "0.1")
    browser.until(lambda: "completed" in browser.one(".big").text, "the end of a short job, without a reload")
    browser.open("/whatif")
    browser.one("main form button").click()
    browser.until(lambda: browser.all("main table") or browser.all(".flash"), "figures")
    assert "2d-las" in browser.text()
    browser.picture("whatif")
    browser.open("/usage?by=job")
    assert str(number) in [found.text for found in browser.all("tbody a")]
    assert "/usage.csv?by=job" in (browser.one("a.button").get_attribute("href") or "")


def all_pages(browser: Browser, job: int) -> None:
    """No complaint of the browser, labels, contrast in both themes, 400 px, keys."""
    browser.open("/")
    device = browser.one(".device h3 a").get_attribute("href").removeprefix(browser.base)  # type: ignore[union-attr]
    pages = [
        "/",
        "/queue",
        "/services",
        "/submit",
        "/quotas",
        "/usage",
        "/whatif",
        "/events",
        "/nodes",
        "/services/new",
    ]
    pages += ["/services/new", device, "/slice/train", f"/job/{job}", f"/submit?like={job}"]
    for path in pages:
        browser.open(path)
        if browser.all("[data-curves]"):
            browser.until(lambda: browser.all(".charts canvas"), "curves")
        for details in browser.all("main details"):
            browser.driver.execute_script("arguments[0].open = true", details)
        browser.audit()
    browser.open("/queue?state=ended")
    browser.fill("text", "no such job")
    browser.until(lambda: "No job like this." in browser.one("#region").text, "the filtered list, without a reload")
    keys(browser)
    pictures(browser, device, job)
    browser.quiet()


def keys(browser: Browser) -> None:
    browser.open("/")
    body = browser.one("body")
    body.send_keys("?")
    browser.until(lambda: browser.all("dialog[open]"), "the keys")
    browser.one("dialog button").click()
    body.send_keys("g")
    body.send_keys("e")
    browser.until(lambda: browser.path() == "/events", "the events, by keys")
    browser.one("body").send_keys("/")
    assert browser.driver.switch_to.active_element.get_attribute("name") == "text"


def pictures(browser: Browser, device: str, job: int) -> None:
    if not browser.takes_pictures:
        return
    for name, path, theme in (
        ("overview", "/", "light"),
        ("overview-dark", "/", "dark"),
        ("slice", "/slice/train", "light"),
        ("job", f"/job/{job}", "light"),
        ("queue", "/queue", "light"),
        ("submit", "/submit", "light"),
        ("device", device, "dark"),
    ):
        browser.open(path)
        browser.picture(name, theme=theme)
    browser.open("/")
    browser.picture("narrow", 400, 800, "dark")


def log_out(browser: Browser) -> None:
    browser.open("/")
    browser.one(".menu summary").click()
    browser.one("[action='/logout'] button").click()
    browser.until(lambda: browser.path() == "/login", "the log-in")
    browser.driver.get(browser.base + "/queue")
    assert browser.path() == "/login"
    assert not browser.driver.execute_script(
        "return performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).length"
    ), "nothing comes from elsewhere"
    browser.audit()
