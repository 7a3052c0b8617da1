"""The reasons not to read: every set of them, and what becomes of the parser."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from protocols.stomp.intake import Intake, Pause
from protocols.stomp.parser import Mode
from tests.protocols.stomp.test_parser import Collecting

SETS = list(chain.from_iterable(combinations(Pause, n) for n in range(len(Pause) + 1)))
FRAME = b"BEGIN\ntransaction:t\n\n\0"


def paused(*reasons: Pause) -> tuple[Collecting, Intake]:
    sink = Collecting()
    intake = Intake(sink.parser)
    for why in reasons:
        intake.pause(why)
    return sink, intake


@pytest.mark.parametrize("reasons", SETS)
def test_what_the_reasons_come_to(reasons: tuple[Pause, ...]) -> None:
    sink, intake = paused(*reasons)
    assert intake.behind is (Pause.TURN in reasons)
    assert intake.held_up is (Pause.ROOM in reasons or Pause.LOGIN in reasons)
    assert sink.parser.mode is (Mode.HALTED if reasons else Mode.PARSING)
    assert len(sink.feed(FRAME)) == (0 if reasons else 1)


@pytest.mark.parametrize("reasons", SETS)
@pytest.mark.parametrize("gone", list(Pause))
def test_what_came_is_parsed_when_the_last_reason_is_gone(
    reasons: tuple[Pause, ...], gone: Pause
) -> None:
    sink, intake = paused(*reasons)
    sink.feed(FRAME)
    intake.resume(gone)
    left = set(reasons) - {gone}
    assert sink.parser.mode is (Mode.HALTED if left else Mode.PARSING)
    assert len(sink.got) == (0 if left else 1)
    assert intake.behind is (Pause.TURN in left)


@pytest.mark.parametrize("reasons", SETS)
def test_at_the_end_nothing_is_read_and_nobody_waits(reasons: tuple[Pause, ...]) -> None:
    sink, intake = paused(*reasons)
    intake.end()
    assert (intake.behind, intake.held_up, sink.parser.mode) == (False, False, Mode.DROPPED)
    intake.pause(Pause.ROOM)
    intake.resume(Pause.ROOM)
    assert sink.parser.mode is Mode.DROPPED
    assert not intake.held_up
