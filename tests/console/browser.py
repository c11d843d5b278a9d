"""Chromium without a window, and what is checked on every page: errors, labels, contrast, width."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.mandatory import unavailable

T = TypeVar("T")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PATIENCE_S = 30.0
#: a click without an effect is repeated
AGAIN_S = 3.0
#: from a phone's to that of a large screen, which is drawn by a processor: no higher than the others
WIDTHS = (400, 3840, 1280)
HEIGHT = 900

#: text is readable (WCAG AA: 4.5, large text 3), fields have labels, ids are unique, there is one heading of the page
AUDIT = """
const wrong = [];
const start = (e) => e.outerHTML.slice(0, 80);
const rgb = (text) => { const m = text.match(/^rgba?\\(([^)]*)\\)$/); return m ? m[1].split(",").map(Number) : null; };
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c && (c.length < 4 || c[3] === 1)) return c; } return [255, 255, 255]; };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || seen.has(e) || !e.checkVisibility({ visibilityProperty: true })) continue;
  if (e.closest("svg, script, option, datalist")) continue;
  seen.add(e);
  const style = getComputedStyle(e), front = rgb(style.color);
  if (!front) { wrong.push("colour " + style.color); continue; }
  const [a, b] = [light(front), light(back(e))].sort((x, y) => y - x);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < (large ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ${start(e)}`);
}
for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
  if (!e.labels?.length && !e.getAttribute("aria-label")) wrong.push("no label: " + start(e));
for (const e of document.querySelectorAll("button, a[href], summary"))
  if (!(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-hidden") === "true"))
    wrong.push("no name: " + start(e));
for (const e of document.querySelectorAll("[role=img], [role=region]"))
  if (!e.getAttribute("aria-label")) wrong.push("no name: " + start(e));
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
for (const id of ids.filter((id, n) => ids.indexOf(id) !== n)) wrong.push("id twice: " + id);
for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
  for (const id of (e.getAttribute("aria-labelledby") || e.getAttribute("aria-describedby")).split(" "))
    if (!document.getElementById(id)) wrong.push("nothing has the id " + id);
if (document.querySelectorAll("h1").length !== 1) wrong.push("headings h1: " + document.querySelectorAll("h1").length);
if (!document.documentElement.lang || !document.title.trim()) wrong.push("no language or title");
if (document.querySelectorAll("main").length !== 1) wrong.push("no main");
return wrong;
"""


def needs_chromium() -> None:
    """Skips the test where there is none; fails it where there must be one."""
    if CHROMIUM and DRIVER:
        return
    unavailable("needs chromium and chromedriver (Debian: chromium chromium-driver)")


class Browser:
    """One browser session; use it in a `with`."""

    def __init__(self, base: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        flags = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1280,900",
        ]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        for flag in flags:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.base = base

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    # ---- moving ----

    def log_in(self, link: str) -> None:
        self.driver.delete_all_cookies()
        self.driver.get(link)
        self.one("button.main").click()
        self.until(lambda: self.path() == "/", "the overview")

    def open(self, path: str) -> str:
        """Loads a page and returns its text. Whatever the browser complained of before is an error."""
        self.quiet()
        self.driver.get(self.base + path)
        return self.text()

    def path(self) -> str:
        return str(self.driver.current_url.removeprefix(self.base))

    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "main").text)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def fill(self, name: str, text: str) -> None:
        field = self.one(f"main [name='{name}']:not([type=hidden])")
        field.clear()
        field.send_keys(text)

    def press(self, selector: str, confirm: bool = False) -> str:
        """Clicks, confirms, waits for the next page; returns its message."""
        before = self.driver.find_element(By.TAG_NAME, "html")
        self.one(selector).click()
        if confirm:
            self.driver.switch_to.alert.accept()
        self.until(lambda: self._is_stale(before), "the next page")
        return self.until(self._message, "a message")

    @staticmethod
    def _is_stale(element: WebElement) -> bool:
        try:
            element.is_enabled()
        except StaleElementReferenceException:
            return True
        return False

    def _message(self) -> str:
        return " ".join(found.text for found in self.all(".flash"))

    def until(self, look: Callable[[], T], what: str) -> T:
        """The first true value of look()."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = look()
            except StaleElementReferenceException:  # it was replaced meanwhile
                found = None
            if found:
                return found  # type: ignore[return-value]
            assert time.monotonic() < until_s, f"{what} did not come: {self.path()}: {self.text()[:2000]}"
            time.sleep(0.05)

    def click_until(self, selector: str, look: Callable[[], object], what: str) -> None:
        """Clicks on something in a part of the page that is replaced now and then: a click in that moment is lost, and
        is repeated."""

        def click() -> bool:
            for element in self.all(selector)[:1]:
                element.click()
            until_s = time.monotonic() + AGAIN_S
            while not (comes := bool(look())) and time.monotonic() < until_s:
                time.sleep(0.05)
            return comes

        self.until(click, what)

    # ---- checks ----

    def quiet(self, but: str = "") -> None:
        """The browser has complained of nothing since the last look; `but`: of what it may."""
        entries: list[Any] = self.driver.get_log("browser")
        complaints = [e["message"] for e in entries if e["level"] == "SEVERE" and not (but and but in e["message"])]
        assert not complaints

    def audit(self) -> None:
        """In both themes, from a phone's width to that of a large screen."""
        for theme in ("light", "dark"):
            self.driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
            wrong = self.driver.execute_script(AUDIT)
            assert not wrong, (self.path(), theme, wrong)
        for width in WIDTHS:
            self.size(width, HEIGHT)
            needed = self.driver.execute_script("return document.documentElement.scrollWidth")
            assert needed <= width, f"{self.path()} is {needed} px wide on a screen of {width}"

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    @property
    def takes_pictures(self) -> bool:
        return bool(os.environ.get("CONSOLE_PICTURES"))

    def picture(self, name: str, width: int = 1280, height: int = 800, theme: str = "light") -> None:
        """A picture of the page, below $CONSOLE_PICTURES if that is set."""
        if not self.takes_pictures:
            return
        folder = os.environ["CONSOLE_PICTURES"]
        self.size(width, height)
        self.driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'; scrollTo(0, 0)")
        time.sleep(1.5)
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))
        self.size(1280, HEIGHT)
