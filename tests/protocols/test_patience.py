"""How long a connection may work: what it has not acted on waits for its next turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.amqp.performatives import Flow
from protocols.transport.patience import CROWD, SHARE_SECONDS, TURN_SECONDS, Patience
from tests.protocols.amqp.peer import Peer as AmqpPeer
from tests.protocols.amqp.peer import frame, of
from tests.protocols.stomp.peer import Peer as StompPeer
from tests.protocols.stomp.peer import frames


class Clock:
    """Seconds that pass by hand, and what is put off to another turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[Callable[[], None]] = []

    def __call__(self) -> float:
        return self.now

    def put_off(self, action: Callable[[], None]) -> None:
        self.turns.append(action)

    def turn(self) -> int:
        """Run one turn; returns how many things it was asked for."""
        due, self.turns = self.turns, []
        for action in due:
            action()
        return len(due)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock) -> Patience:
    return Patience(clock.put_off, clock)


def test_many_that_wait_are_a_crowd_until_they_had_their_turns(clock, patience):
    for _ in range(CROWD):
        patience.later(lambda: None)
    assert not patience.crowded
    patience.later(lambda: None)
    assert patience.crowded
    clock.turn()
    assert not patience.crowded


def test_a_share_begins_with_each_connection(clock, patience):
    patience.begin()
    assert not patience.spent()
    clock.now += SHARE_SECONDS * 1.1
    assert patience.spent()
    patience.begin()
    assert not patience.spent()


def test_while_those_that_wait_fill_a_turn_one_more_goes_behind_them(clock, patience):
    shares: list[bool] = []

    def goes_on() -> None:
        patience.begin()
        clock.now += SHARE_SECONDS / 2
        shares.append(patience.spent())
        patience.end()

    patience.later(goes_on)
    patience.later(goes_on)
    patience.begin()
    clock.now += SHARE_SECONDS / 100
    assert not patience.spent(), "the turn has room for it"
    patience.later(goes_on)
    patience.begin()
    clock.now += SHARE_SECONDS / 100
    assert patience.spent()
    assert patience.end() == pytest.approx(SHARE_SECONDS / 100)
    clock.turn()
    assert shares == [False] * 3, "those that wait have theirs"


def test_those_that_wait_go_on_by_turns_and_not_all_in_one(clock, patience):
    went: list[int] = []

    def goes_on(number: int) -> None:
        went.append(number)
        clock.now += TURN_SECONDS * 0.6
        if len(went) < 9:
            patience.later(lambda: goes_on(number))

    for number in range(3):
        patience.later(lambda number=number: goes_on(number))
    turns = 0
    while clock.turn():
        turns += 1
        assert len(clock.turns) <= 1, "one turn is asked for, however many wait"
    assert went == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert turns == 6, "two in each turn"


def test_a_flood_of_small_amqp_frames_takes_many_turns():
    peer = AmqpPeer.begun()
    echo = Flow(
        next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=100, echo=True
    )
    steps = iter(range(1_000_000))
    peer.engine.spent = lambda: next(steps) % 10 == 9
    peer.engine.receive_data(frame(echo) * 100, peer.now)
    answered, turns = 0, 1
    while peer.engine.behind:
        peer._read()
        answered += len(of(peer.heard, Flow))
        peer.heard.clear()
        assert answered == 10 * turns
        peer.engine.go_on(peer.now)
        turns += 1
    assert turns == 10


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_flood_of_small_stomp_frames_takes_many_turns(version):
    peer = StompPeer(version)
    steps = iter(range(1_000_000))
    peer.session.spent = lambda: next(steps) % 10 == 9
    peer.session.receive_data(b"ABORT\ntransaction:none\n\n\0" * 100, peer.now)
    turns = 1
    while peer.session.behind:
        assert len(frames(peer.session.data_to_send())) == 10
        peer.session.go_on(peer.now)
        turns += 1
    assert turns == 11
    assert peer.session.data_to_send() == b""


def test_what_comes_while_a_stomp_peer_waits_is_behind_what_came_before():
    peer = StompPeer("1.2")
    peer.session.spent = lambda: True
    for number in range(5):
        words = (number, number)
        data = b"BEGIN\ntransaction:%d\n\n\0SEND\ndestination:q\n\n%d\0" % words
        peer.session.receive_data(data, peer.now)
    assert peer.session.behind
    peer.hear()
    assert peer.bodies() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_connection_that_is_lost_while_it_waits_does_nothing_more():
    peer = StompPeer("1.1")
    peer.session.spent = lambda: True
    peer.session.receive_data(b"ABORT\ntransaction:n\n\n\0SEND\ndestination:q\n\na\0", peer.now)
    assert peer.session.behind
    peer.session.connection_lost(peer.now)
    peer.session.go_on(peer.now)
    peer.hear()
    assert peer.bodies() == []
