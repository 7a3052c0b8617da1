"""The states of a batch and the ways between them, and what a batch is written for. Pure.

    OPEN ⇄ ATOMIC
      ├──────────────────────> FIXED ──> WRITING ──┬───────────> SYNCED
      ├──> ASIDE ──┐                               └──> TOLD ──────^
      └────────────┴──> GONE

A batch that has to be synced before senders are told of it (`Batch.firm`) never comes by TOLD.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class State(Enum):
    """How far a batch has come."""

    #: The states that may follow; a look at it costs less than one into `NEXT`.
    ways: tuple[State, ...]

    #: It is being filled, and consumers cancel what they take of it.
    OPEN = auto()
    #: It is being filled with what must not be cut in two.
    ATOMIC = auto()
    #: It waits by itself for the writer, and consumers cancel what they take of it.
    ASIDE = auto()
    #: It has its place in a segment, and nothing of it changes any more.
    FIXED = auto()
    #: The writer has it.
    WRITING = auto()
    #: The kernel has it and its senders are told: a power cut may take it back.
    TOLD = auto()
    #: The device has it.
    SYNCED = auto()
    #: It is never written: nothing is left of it, or it is a part of a younger one.
    GONE = auto()


NEXT: Final[Mapping[State, tuple[State, ...]]] = {
    State.OPEN: (State.ATOMIC, State.ASIDE, State.FIXED, State.GONE),
    State.ATOMIC: (State.OPEN,),
    State.ASIDE: (State.GONE,),
    State.FIXED: (State.WRITING,),
    State.WRITING: (State.TOLD, State.SYNCED),
    State.TOLD: (State.SYNCED,),
    State.SYNCED: (),
    State.GONE: (),
}
for _state, _ways in NEXT.items():
    _state.ways = _ways


class Kind(Enum):
    """Why a batch is written."""

    #: For its records; without any it is not written.
    RECORDS = auto()
    #: For what is before it, which is synced with it and told apart from a torn tail.
    COVER = auto()
    #: For the mark of a clean stop, which it holds alone.
    STOP = auto()
