"""The keys of `vgpu top`: what they change, and a thread that reads them from the terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: orders of the slices of a device, taken in turn
SORTS = ("name", "got", "wait", "memory")
HELP = (
    ("q", "quit"),
    ("s", "next order of the slices: by name, share, wait, memory"),
    ("f or /", "filter by a part of a slice's name or of its user; Enter keeps it, Esc clears it"),
    ("p", "processes of each slice"),
    ("space", "pause, and continue"),
    ("h or ?", "this help"),
)
_ENTER, _ESCAPE, _DELETE = ("\r", "\n"), "\x1b", ("\x7f", "\b")
_FILTER_MAX = 64
_LOOK_S = 0.1


@dataclass
class Screen:
    """What the user has chosen to see. Pure."""

    sort: str = SORTS[0]
    filter: str = ""
    typing: bool = False  # keys are letters of the filter
    processes: bool = False
    is_paused: bool = False
    help: bool = False
    has_ended: bool = False
    keys: bool = True  # whether there is a keyboard

    def press(self, key: str) -> None:
        """One key; a key that means nothing changes nothing."""
        if self.typing:
            self._type(key)
        elif key == "q":
            self.has_ended = True
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key in ("f", "/"):
            self.typing = True
        elif key == "p":
            self.processes = not self.processes
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key in ("h", "?"):
            self.help = not self.help
        elif key == _ESCAPE:
            self.help, self.filter = False, ""

    def _type(self, key: str) -> None:
        if key in _ENTER:
            self.typing = False
        elif key == _ESCAPE:
            self.typing, self.filter = False, ""
        elif key in _DELETE:
            self.filter = self.filter[:-1]
        elif key.isprintable() and len(self.filter) < _FILTER_MAX:
            self.filter += key

    def shows(self, name: str, user: str) -> bool:
        """Whether a slice passes the filter."""
        return not self.filter or self.filter.lower() in f"{name} {user}".lower()

    def footer(self) -> str:
        """The last line: the keys and the present choices."""
        if not self.keys:
            return "Ctrl-C ends"
        if self.typing:
            return f"filter: {self.filter}_  (Enter, Esc)"
        pause = "PAUSED: space continues" if self.is_paused else "space pause"
        chosen = f"f filter{f': {self.filter}' if self.filter else ''}"
        return f"q quit  s sort: {self.sort}  {chosen}  p processes  {pause}  h help"


def split_keys(text: str) -> list[str]:
    """The keys in what a terminal has sent at once; sequences of arrows and function keys are left out."""
    if text.startswith(_ESCAPE) and len(text) > 1:
        return []
    return list(text)


@contextlib.contextmanager
def reading(screen: Screen, on_change: Callable[[], None]) -> Iterator[None]:
    """Reads keys in a thread while the block runs; `on_change` is called after each. Without a keyboard: nothing."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (OSError, ValueError, termios.error):
        screen.keys = False
        yield
        return
    stopping = threading.Event()

    def read() -> None:
        while not stopping.is_set():
            if select.select([terminal], [], [], _LOOK_S)[0]:
                sent = os.read(terminal, 64)
                if not sent:  # the terminal has gone
                    return
                for key in split_keys(sent.decode(errors="ignore")):
                    screen.press(key)
                on_change()

    tty.setcbreak(terminal)
    thread = threading.Thread(target=read, name="keys", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
