"""The states of a slice's gate as a table, for docs/design/states.md. A test compares it with what the model does."""

from __future__ import annotations

from enum import Enum

from models.arbiter.model import CLOSED, COUNT, SOLO, State


class GateEvent(Enum):
    """What changes the state of a gate."""

    OPEN = "the slice is admitted"
    TURN_ENDS = "its lease ends, or it pauses: the slot waits for its drain"
    CLOSE = "a free slice waits for others, or loses its place in the slot"
    GIVE_UP = "it has nothing outstanding, or no process is attached"
    DRAIN_LATE = "it is about to be drained, or late: the next one runs beside it"
    DRAINED = "nothing runs: all that was launched has completed, or waits for something else"
    RESUME = "work that waited for something else runs"


_S, _E = State, GateEvent
#: (state, event) -> state
GATE_TRANSITIONS: dict[tuple[State, GateEvent], State] = {
    (_S.SHUT, _E.OPEN): _S.OPEN,
    (_S.OPEN, _E.TURN_ENDS): _S.DRAINING,
    (_S.OPEN, _E.CLOSE): _S.OVERLAP,
    (_S.OPEN, _E.GIVE_UP): _S.SHUT,
    (_S.DRAINING, _E.DRAIN_LATE): _S.OVERLAP,
    (_S.DRAINING, _E.DRAINED): _S.SHUT,
    (_S.OVERLAP, _E.OPEN): _S.OPEN,
    (_S.OVERLAP, _E.DRAINED): _S.SHUT,
    (_S.SHUT, _E.RESUME): _S.OVERLAP,
}
#: the gate word that processes see in each state. SOLO: launches pass uncounted. A gate that does not drain opens for a
#: moment now and then, for its work may wait for a launch that stands at it
GATE_WORDS: dict[State, set[int]] = {
    State.SHUT: {CLOSED},
    State.OPEN: {COUNT, SOLO},
    State.DRAINING: {CLOSED},
    State.OVERLAP: {CLOSED, COUNT},
}
