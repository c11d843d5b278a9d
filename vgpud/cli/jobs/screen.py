"""What a job's output does to the user's terminal: modes to be undone when it is left, output that is shown again.

Pure. Control sequences are those of ECMA-48 and xterm.
"""

from __future__ import annotations

import re

#: private modes that programs set and a shell does not expect: xterm's numbers
_MODES = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_CURSOR, _WRAP = 25, 7
#: 1049, 1047, 47: the alternate screen; 10xx, 2004: reports of mouse, focus and pastes; 1: keys of the cursor
_UNDONE = (1049, 1047, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 1)
_ON_AT_FIRST = (_CURSOR, _WRAP)
#: longest sequence that is recognised across two pieces of output
_TAIL_BYTES = 72
#: questions to the terminal, whose answers would be typed into the job a second time: device attributes, status
#: reports, version, settings (DECRQSS), capabilities (XTGETTCAP), colours (OSC)
_QUESTIONS = re.compile(
    rb"\x1b\[[?>=]?[0-9;]{0,32}[cn]|\x1bZ|\x1b\[>[0-9;]{0,32}q|\x1b\[\??[0-9;]{0,32}\$p|\x1b\[[0-9;]{0,32}t"
    rb"|\x1bP[$+]q[^\x1b]{0,256}\x1b\\|\x1b\][0-9;]{1,32}\?(?:\x07|\x1b\\)|\x05"
)
#: of what has been shown, to recognise it
SHOWN_BYTES = 256


class Modes:
    """The modes that the job has changed."""

    def __init__(self) -> None:
        self._changed: dict[int, bool] = {}
        self._tail = b""

    def see(self, output: bytes) -> None:
        """In the order in which it is shown."""
        text = self._tail + output
        end = 0
        for match in _MODES.finditer(text):
            end = match.end()
            for number in match[1].split(b";"):
                if number and int(number) in (*_UNDONE, *_ON_AT_FIRST):
                    self._changed[int(number)] = match[2] == b"h"
        self._tail = text[max(end, len(text) - _TAIL_BYTES) :]

    def undo(self) -> bytes:
        """What brings the terminal back."""
        undone = b"".join(b"\x1b[?%dl" % mode for mode in _UNDONE if self._changed.get(mode))
        undone += b"".join(b"\x1b[?%dh" % mode for mode in _ON_AT_FIRST if not self._changed.get(mode, True))
        return undone + b"\x1b[0m"


def shown_again(replay: bytes, shown: bytes) -> bytes:
    """What is to be shown of a terminal's last output: without questions, and without what ends with `shown`, which is
    there already."""
    _, found, rest = replay.rpartition(shown) if shown else (b"", b"", replay)
    return _QUESTIONS.sub(b"", rest if found or not shown else replay)
