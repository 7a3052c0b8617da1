"""How much a subscription takes: window and prefetch alone, and both together."""

from __future__ import annotations

import pytest

from gateway.model.message import STOMP, Message
from protocols.stomp.window import NO_WINDOW, ROOM_MAX, Window

OVERHEAD = 10


def bodies(*sizes: int) -> list[Message]:
    return [Message(b"x" * size, seq, STOMP | 4) for seq, size in enumerate(sizes)]


def test_without_limits_it_takes_what_the_output_takes() -> None:
    window = Window()
    assert window.credit(7) is None
    assert window.room(500, 7) == 500
    assert not window.counts_bytes
    for call in (lambda: window.fitting([], 0, OVERHEAD), lambda: window.settled([], OVERHEAD)):
        with pytest.raises(AssertionError):
            call()


@pytest.mark.parametrize(("held", "room"), [(0, 3), (2, 1), (3, 0)])
def test_prefetch_counts_messages(held: int, room: int) -> None:
    window = Window(NO_WINDOW, 3)
    assert window.credit(held) == room
    assert window.room(ROOM_MAX, held) == room
    assert window.room(2, held) == min(2, room)


@pytest.mark.parametrize(("bytes_max", "room"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10)])
def test_the_window_is_guessed_in_messages_and_one_always_goes(bytes_max: int, room: int) -> None:
    window = Window(bytes_max)
    window.size = 100
    assert window.room(ROOM_MAX, 0) == room
    assert window.credit(0) == room


def test_messages_go_while_those_before_them_are_below_the_window() -> None:
    window = Window(100)
    messages = bodies(40, 39, 1, 0)
    assert window.fitting(messages, 0, OVERHEAD) == 3, "50, then 99, and one passes it"
    window.size = 11
    assert window.room(ROOM_MAX, 3) <= 0
    assert window.credit(3) == 0
    assert window.fitting(messages[3:], 3, OVERHEAD) == 0
    window.settled(messages[:1], OVERHEAD)
    assert window.room(ROOM_MAX, 2) == 4, "40 bytes are left"
    assert window.fitting(messages[3:], 2, OVERHEAD) == 1


def test_a_message_above_the_window_goes_alone() -> None:
    window = Window(100)
    assert window.fitting(bodies(500, 1), 0, OVERHEAD) == 1
    assert window.fitting(bodies(1), 1, OVERHEAD) == 0


def test_window_and_prefetch_both_hold() -> None:
    window = Window(1000, 3)
    window.size = 100
    assert (window.room(ROOM_MAX, 0), window.credit(0)) == (3, 3)
    assert window.fitting(bodies(790), 0, OVERHEAD) == 1
    assert (window.room(ROOM_MAX, 1), window.credit(1)) == (2, 2)
    narrow = Window(200, 30)
    narrow.size = 100
    assert (narrow.room(ROOM_MAX, 0), narrow.credit(0)) == (2, 2)
