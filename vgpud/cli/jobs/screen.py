"""What a job's output does to the user's terminal: modes to be undone when it is left, output that is shown again.

Pure. Control sequences are those of ECMA-48 and xterm.
"""

from __future__ import annotations

import re

#: what programs set and a shell does not expect: private modes (xterm's numbers), reports of keys (xterm's
#: modifyOtherKeys; kitty's stack of them), the keypad, the lines that scroll, the characters of G0, and those of G1
_CHANGES = re.compile(
    rb"\x1b\[\?(?P<modes>[0-9;]{1,64})(?P<on>[hl])|\x1b\[>4(?P<other_keys>;[0-9]?)?m"
    rb"|\x1b\[(?P<stack>[<>=])(?P<count>[0-9]{0,4})(?:;[0-9]?)?u|\x1b(?P<keypad>[=>])"
    rb"|\x1b\[(?P<lines>[0-9;]{0,12})r|\x1b\((?P<g0>[0-9A-Z<>])|(?P<shift>[\x0e\x0f])"
)
_CURSOR, _WRAP = 25, 7
#: the alternate screen
_OTHER_SCREEN = (1049, 1047, 47)
#: 10xx, 2004: reports of mouse, focus and pastes; 1: keys of the cursor
_UNDONE = (*_OTHER_SCREEN, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 1)
_ON_AT_FIRST = (_CURSOR, _WRAP)
#: longest sequence that is recognised across two pieces of output
_TAIL_BYTES = 72
#: questions to the terminal, whose answers would be typed into the job a second time: device attributes, status
#: reports, version, reports of keys, settings (DECRQSS), capabilities (XTGETTCAP), colours (OSC)
_QUESTIONS = re.compile(
    rb"\x1b\[[?>=]?[0-9;]{0,32}[cn]|\x1bZ|\x1b\[>[0-9;]{0,32}q|\x1b\[\??[0-9;]{0,32}\$p|\x1b\[[0-9;]{0,32}t"
    rb"|\x1bP[$+]q[^\x1b]{0,256}\x1b\\|\x1b\][0-9;]{1,32}\?(?:\x07|\x1b\\)|\x1b\[\?u|\x05"
)
#: of what has been shown, to recognise it
SHOWN_BYTES = 256


class Modes:
    """The modes that the job has changed."""

    def __init__(self) -> None:
        self._changed: dict[int, bool] = {}
        self._others: dict[str, bytes] = {}  # what undoes each other change
        self._pushed = {False: 0, True: 0}  # kitty's stack, which the alternate screen has of its own
        self._tail = b""

    def see(self, output: bytes) -> None:
        """In the order in which it is shown."""
        text = self._tail + output
        end = 0
        for match in _CHANGES.finditer(text):
            end = match.end()
            if match["modes"]:
                self._see_modes(match["modes"], match["on"] == b"h")
            elif match["stack"]:
                self._see_stack(match["stack"], match["count"])
            else:
                self._see_other(match)
        self._tail = text[max(end, len(text) - _TAIL_BYTES) :]

    def _see_modes(self, numbers: bytes, is_on: bool) -> None:
        for number in numbers.split(b";"):
            if number and int(number) in (*_UNDONE, *_ON_AT_FIRST):
                self._changed[int(number)] = is_on

    def _see_stack(self, operation: bytes, count: bytes) -> None:
        on = self._is_on_other_screen()
        if operation == b">":
            self._pushed[on] += 1
        elif operation == b"<":
            self._pushed[on] = max(0, self._pushed[on] - int(count or 1))
        else:
            self._note("keys", b"\x1b[=0u", int(count or 0) != 0)

    def _see_other(self, match: re.Match[bytes]) -> None:
        if match["keypad"]:
            self._note("keypad", b"\x1b>", match["keypad"] == b"=")
        elif match["g0"]:
            self._note("g0", b"\x1b(B", match["g0"] != b"B")
        elif match["shift"]:
            self._note("shift", b"\x0f", match["shift"] == b"\x0e")
        elif match["lines"] is not None:  # which moves the cursor as well
            self._note("lines", b"\x1b7\x1b[r\x1b8", bool(match["lines"]))
        else:
            self._note("other keys", b"\x1b[>4m", (match["other_keys"] or b";0") not in (b";", b";0"))

    def _note(self, what: str, undo: bytes, is_changed: bool) -> None:
        self._others.pop(what, None)
        if is_changed:
            self._others[what] = undo

    def _is_on_other_screen(self) -> bool:
        return any(self._changed.get(mode) for mode in _OTHER_SCREEN)

    def _undo_pushes(self, on_other_screen: bool) -> bytes:
        count = self._pushed[on_other_screen]
        return b"\x1b[<%du" % count if count else b""

    def undo(self) -> bytes:
        """What brings the terminal back."""
        undone = self._undo_pushes(True) if self._is_on_other_screen() else b""
        undone += b"".join(b"\x1b[?%dl" % mode for mode in _UNDONE if self._changed.get(mode))
        undone += b"".join(b"\x1b[?%dh" % mode for mode in _ON_AT_FIRST if not self._changed.get(mode, True))
        return undone + self._undo_pushes(False) + b"".join(self._others.values()) + b"\x1b[0m"


def shown_again(replay: bytes, previous_output: bytes) -> bytes:
    """What is to be shown of a terminal's last output: without questions, and without what ends with `previous_output`,
    which is there already."""
    _, found, rest = replay.rpartition(previous_output) if previous_output else (b"", b"", replay)
    return _QUESTIONS.sub(b"", rest if found or not previous_output else replay)
