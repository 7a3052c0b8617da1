"""A connection's states, answers and end, without a session: every state, every input."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause, Ending
from gateway.model.principal import By, Principal
from protocols.stomp.connection import Connection, Input, State
from protocols.stomp.greeting import Greeting, greet
from protocols.stomp.intake import Intake, Pause
from protocols.stomp.limits import StompLimits
from protocols.stomp.parser import Mode, Parser
from protocols.stomp.versions import Version
from tests.protocols.stomp.test_parser import Collecting

REFUSAL = Refusal(code=Code.BAD_VALUE, text="No.")


class Line:
    """A connection, and what it asks of its session."""

    def __init__(self, limits: StompLimits | None = None) -> None:
        self.calls: list[str] = []
        self.late = False
        self.limits = limits or StompLimits()
        self.parser = Parser(Collecting(), self.limits)
        self.intake = Intake(self.parser)
        self.connection = Connection(self, self.limits, self.intake, "c1", "host:1")

    def wake(self) -> None:
        self.calls.append("wake")

    def spent(self) -> bool:
        return self.late

    def settle(self) -> None:
        self.calls.append("settle")

    def give_back(self) -> None:
        assert self.connection.ended
        self.calls.append("give back")

    def heard(self) -> bytes:
        return self.connection.outbox.take()


def greeting(version: str) -> Greeting:
    found = greet(
        {"accept-version": version, "login": "ann", "client-id": "me", "user-agent": "a/1"},
        StompLimits(),
        "c1",
    )
    assert found is not None
    return found


def opened(version: str = "1.2", limits: StompLimits | None = None) -> Line:
    line = Line(limits)
    line.connection.opened(greeting(version), Principal(None))
    return line


def reached(state: State) -> Line:
    line = Line() if state is State.LOGIN else opened()
    if state in (State.ENDED, State.CLOSED):
        line.connection.end(Ending(cause=Cause.CLIENT), b"bye", 7)
    if state is State.CLOSED:
        line.connection.outbox.durable_up_to(7)
    assert line.connection.state is state
    line.calls.clear()
    return line


# ---- states


LEGAL = {
    (State.LOGIN, Input.LET_IN): State.OPEN,
    (State.LOGIN, Input.END): State.ENDED,
    (State.OPEN, Input.END): State.ENDED,
    (State.ENDED, Input.LAST_WORD): State.CLOSED,
}


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("what", list(Input))
def test_a_step_outside_the_table_asserts(state: State, what: Input) -> None:
    connection = reached(state).connection
    following = LEGAL.get((state, what))
    if following is not None:
        connection._step(what)
        assert connection.state is following
        return
    with pytest.raises(AssertionError, match=f"{what.value} in state {state.value}"):
        connection._step(what)
    assert connection.state is state


def test_what_a_greeting_says_is_known_from_then_on() -> None:
    line = Line()
    line.connection.opened(greeting("1.1"), Principal("ann", by=By.PASSWORD))
    connection = line.connection
    assert (connection.version, connection.principal.user, connection.principal.account) == (
        Version.V1_1,
        "ann",
        "ann",
    )
    assert (connection.client_id, connection.agent) == ("me", "a/1")
    facts = connection.facts("0")
    assert (facts.protocol, facts.connection, facts.remote) == ("STOMP", "c1", "host:1")
    assert (facts.user, facts.name) == ("ann", "0")


@pytest.mark.parametrize("state", [State.LOGIN, State.OPEN])
def test_it_ends_once_and_closes_behind_its_last_word(state: State) -> None:
    line = reached(state)
    line.connection.outbox.confirm(3, b"first")
    line.connection.end(Ending(cause=Cause.CUT), b"last", 2)
    line.connection.end(Ending(cause=Cause.CLIENT), b"again")
    line.connection.fail(REFUSAL)
    assert line.calls == ["give back"]
    assert line.connection.state is State.ENDED
    assert line.parser.mode is Mode.DROPPED
    line.connection.outbox.durable_up_to(3)
    assert line.connection.state is State.CLOSED
    assert line.heard() == b"firstlast"
    assert line.connection.ending == Ending(cause=Cause.CUT)


@pytest.mark.parametrize("state", list(State))
def test_a_cut_connection_says_nothing_more(state: State) -> None:
    line = reached(state)
    line.connection.cut_off()
    line.connection.outbox.durable_up_to(9)
    assert line.connection.state is (State.CLOSED if state is State.CLOSED else State.ENDED)
    assert line.heard() == (b"bye" if state is State.CLOSED else b"")
    ended_before = state in (State.ENDED, State.CLOSED)
    assert line.calls == ([] if ended_before else ["give back"])
    assert line.connection.ending is not None
    assert line.connection.ending.cause is (Cause.CLIENT if ended_before else Cause.CUT)


@pytest.mark.parametrize("state", list(State))
def test_a_failed_store_closes_whatever_waited(state: State) -> None:
    line = reached(state)
    if state is State.OPEN:
        line.connection.outbox.confirm(3, b"receipt")
    line.connection.store_failed(Refusal(code=Code.STORE_FAILED, text="Gone."))
    assert line.connection.state is State.CLOSED
    said = line.heard()
    assert b"receipt" not in said
    assert (b"error-code:store-failed" in said) is (state in (State.LOGIN, State.OPEN))


# ---- refusals


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    ("code", "ends"), [(Code.BAD_VALUE, False), (Code.DISK_FULL, True), (Code.SHUTTING_DOWN, True)]
)
def test_a_refusal_ends_1_2_and_where_nothing_more_can_come(
    version: str, code: Code, ends: bool
) -> None:
    line = opened(version)
    line.connection.refuse(Refusal(code=code, text="No."), b"5")
    assert line.connection.ended is (ends or version == "1.2")
    said = line.heard()
    assert said.startswith(b"ERROR\n")
    assert b"receipt-id:5\n" in said


def test_too_many_refusals_end_it() -> None:
    line = opened("1.1", StompLimits(errors_per_minute=2))
    for _ in range(2):
        line.connection.refuse(REFUSAL, None)
    assert not line.connection.ended
    line.connection.refuse(REFUSAL, None)
    assert line.connection.ended
    assert b"error-code:too-many" in line.heard()


def test_what_a_refusal_means_for_the_log() -> None:
    for code, cause in (
        (Code.BAD_FRAME, Cause.PROTOCOL_ERROR),
        (Code.OPERATOR, Cause.OPERATOR),
        (Code.MEMORY_FULL, Cause.FULL),
        (Code.BAD_SELECTOR, Cause.REFUSED),
    ):
        line = opened()
        line.connection.fail(Refusal(code=code, text="No."))
        assert line.connection.ending == Ending(cause=cause, text="No.", code=code)


def test_the_log_may_be_told_something_else() -> None:
    line = opened()
    ending = Ending(cause=Cause.TIMED_OUT)
    line.connection.fail(REFUSAL, ending=ending)
    assert line.connection.ending is ending


# ---- what its parts ask for


def test_an_expelled_connection_gets_its_error_sent() -> None:
    line = opened()
    line.connection.expel(REFUSAL)
    line.connection.expel(REFUSAL)
    assert line.calls == ["give back", "settle"]


def test_acks_are_heard_again_where_it_was_not_read() -> None:
    line = opened()
    line.connection.must_hear_acks()
    assert (line.calls, line.connection.look_due) == ([], False)
    line.intake.pause(Pause.ROOM)
    line.connection.must_hear_acks()
    assert (line.calls, line.connection.look_due) == (["wake"], True)


def test_a_removed_subscription_is_told_of_before_the_next_output() -> None:
    line = opened()
    line.connection.subscription_removed(REFUSAL)
    assert (line.calls, line.connection.look_due) == (["wake"], True)
    assert line.connection.take_removed() == [REFUSAL]
    assert line.connection.take_removed() == []


def test_the_others_have_a_turn_when_this_one_has_taken_its_time() -> None:
    line = opened()
    line.connection.let_others()
    assert not line.intake.behind
    line.late = True
    line.connection.let_others()
    assert line.intake.behind
    line.connection.fail(REFUSAL)
    line.connection.let_others()
    assert not line.intake.behind
