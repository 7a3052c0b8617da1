"""The handshake alone, without a connection: every stage, with what may come and what may not."""

from __future__ import annotations

import pytest

from gateway.model.objects import NOBODY
from gateway.model.peers import Cause
from protocols.amqp.conditions import ConnectionFaultError
from protocols.amqp.handshake import Handshake, Stage
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Begin, Open, SaslInit, SaslOutcome
from protocols.amqp.sasl import BUILT_IN
from tests.protocols.amqp.peer import AMQP_HEADER, SASL_HEADER, frame, of, parse
from tests.protocols.scripted_broker import ScriptedAuthenticator

STRANGE = b"HTTP/1.1"
SASL = 1
PLAIN = frame(SaslInit(mechanism="PLAIN", initial_response=b"\0me\0secret"), kind=SASL)
OPEN = frame(Open(container_id="c"))
BEGIN = frame(Begin(next_outgoing_id=1, incoming_window=1, outgoing_window=1))
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
OVER = (Stage.OPENED, Stage.LOGIN_FAILED, Stage.REFUSED)


class Talk:
    """A handshake, and what it said and was told."""

    def __init__(self, *, is_open=False, **limits) -> None:
        self.users = ScriptedAuthenticator(is_open=is_open)
        self.woken = 0
        self.machine = Handshake(self.users, AmqpLimits(**limits), BUILT_IN, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def say(self, *data: bytes) -> list:
        """Give it each of these alone; returns what it says."""
        for one in data:
            assert self.machine.take(one, 0, len(one)) == len(one)
        return self.said()

    def said(self) -> list:
        found, rest = parse(b"".join(self.machine.data_to_send()))
        assert rest == b""
        return [one.performative for one in found]


def reached(stage: Stage) -> Talk:
    """Return a handshake that has come to a stage which is not its end."""
    talk = Talk()
    if stage is not Stage.HEADER:
        talk.say(SASL_HEADER)
    if stage in (Stage.LOGGED_IN, Stage.OPEN):
        talk.say(PLAIN)
        talk.users.answer(True)
    if stage is Stage.OPEN:
        talk.say(AMQP_HEADER)
    talk.said()
    assert talk.machine.stage is stage
    return talk


@pytest.mark.parametrize(
    ("stage", "said", "after", "answer"),
    [
        (Stage.HEADER, STRANGE, Stage.REFUSED, SASL_HEADER),
        (Stage.HEADER, AMQP_HEADER, Stage.REFUSED, SASL_HEADER),
        (Stage.HEADER, SASL_HEADER, Stage.SASL, SASL_HEADER),
        (Stage.LOGGED_IN, AMQP_HEADER, Stage.OPEN, AMQP_HEADER),
        (Stage.LOGGED_IN, SASL_HEADER, Stage.REFUSED, AMQP_HEADER),
        (Stage.LOGGED_IN, STRANGE, Stage.REFUSED, AMQP_HEADER),
        (Stage.SASL, OPEN, Stage.LOGIN_FAILED, None),
        (Stage.SASL, PLAIN, Stage.SASL, None),
        (Stage.OPEN, EMPTY, Stage.OPEN, None),
        (Stage.OPEN, OPEN, Stage.OPENED, None),
    ],
)
def test_each_stage_and_what_comes_in_it(stage, said, after, answer):
    talk = reached(stage)
    assert talk.say(said)[:1] == ([] if answer is None else [answer])
    machine = talk.machine
    assert machine.stage is after
    assert bool(machine.reason) == (after in (Stage.REFUSED, Stage.LOGIN_FAILED))
    assert machine.speaks_amqp == (after in (Stage.OPEN, Stage.OPENED))


@pytest.mark.parametrize("first", [PLAIN, BEGIN, frame(Open(container_id=""))])
def test_what_is_no_open_opens_nothing(first):
    talk = reached(Stage.OPEN)
    with pytest.raises(ConnectionFaultError):
        talk.say(first)
    assert (talk.machine.stage, talk.machine.opened) == (Stage.OPEN, None)


@pytest.mark.parametrize("right", [True, False])
def test_an_answer_that_comes_later_wakes_the_connection(right):
    talk = reached(Stage.SASL)
    machine = talk.machine
    assert talk.say(PLAIN) == []
    # What comes meanwhile waits, up to the limit.
    assert machine.take(AMQP_HEADER, 0, 8) == 0
    assert machine.need == AmqpLimits().prelogin_bytes + 1
    talk.users.answer(right)
    assert talk.woken == 1
    assert len(of(parse(b"".join(machine.data_to_send()))[0], SaslOutcome)) == 1
    assert machine.stage is (Stage.LOGGED_IN if right else Stage.LOGIN_FAILED)
    principal = machine.principal
    assert (principal.user, principal.account) == (("me", "me") if right else (None, NOBODY))
    assert right or machine.cause is Cause.LOGIN_REFUSED


def test_an_answer_for_an_abandoned_login_changes_nothing():
    talk = reached(Stage.SASL)
    talk.say(PLAIN)
    talk.machine.abandon()
    talk.users.answer(True)
    assert (talk.woken, talk.said(), talk.machine.principal.user) == (0, [], None)


def test_without_a_login_the_header_of_amqp_is_enough():
    talk = Talk(is_open=True)
    assert talk.say(AMQP_HEADER) == [AMQP_HEADER]
    talk.say(OPEN)
    assert talk.machine.opened == Open(container_id="c")
    assert (talk.machine.principal.user, talk.machine.principal.account) == (None, NOBODY)


def test_all_that_comes_is_bounded_together():
    talk = Talk(is_open=True, prelogin_bytes=24)
    talk.say(AMQP_HEADER, EMPTY, EMPTY)
    with pytest.raises(ConnectionFaultError, match="24 bytes"):
        talk.say(EMPTY)


@pytest.mark.parametrize("ending", [(SASL_HEADER, OPEN), (STRANGE,)])
def test_nothing_is_taken_when_it_is_over(ending):
    talk = Talk()
    talk.say(*ending)
    assert talk.machine.stage in OVER
    with pytest.raises(AssertionError):
        talk.machine.take(AMQP_HEADER, 0, 8)
