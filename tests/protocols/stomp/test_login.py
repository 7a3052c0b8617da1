"""The login alone, without a connection: every stage, with what may come and what may not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from gateway.model.errors import Code, Refusal
from gateway.model.objects import NOBODY
from gateway.model.peers import Cause
from protocols.stomp.frame import Head
from protocols.stomp.heads import FrameError
from protocols.stomp.limits import StompLimits
from protocols.stomp.login import Input, Login, Stage
from protocols.stomp.versions import Version
from tests.protocols.scripted_broker import ScriptedAuthenticator
from tests.protocols.stomp.peer import frames

LIMITS = StompLimits(login_seconds=10.0, login_bytes_max=100)
OVER = (Stage.LET_IN, Stage.REFUSED, Stage.LEFT)


class Talk:
    """A login, and the stages that its session was told of."""

    def __init__(self, *, is_open: bool = False, users: bool = True) -> None:
        self.users = ScriptedAuthenticator(is_open=is_open, users=users)
        self.told: list[Stage] = []
        self.machine = Login(self.users, LIMITS, "c1", self._moved)

    def _moved(self) -> None:
        self.told.append(self.machine.stage)

    def say(self, command: str, **headers: str) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.machine.frame(Head(command, names, -1), b"")

    def answer(self, good: bool) -> None:
        assert self.users.answer is not None
        self.users.answer(good)

    def error(self) -> tuple[str, str]:
        """Return the code of the last word, and its text."""
        ((command, headers, body),) = frames(self.machine.last_word)
        assert command == "ERROR"
        return headers["error-code"], body.decode()


def connect(talk: Talk) -> None:
    talk.say("CONNECT", login="ann", passcode="p")


def reached(stage: Stage) -> Talk:
    """Return a login at a stage."""
    talk = Talk()
    if stage is not Stage.CONNECT:
        connect(talk)
    if stage in (Stage.LET_IN, Stage.REFUSED):
        talk.answer(stage is Stage.LET_IN)
    if stage is Stage.LEFT:
        talk.machine.leave()
    assert talk.machine.stage is stage
    return talk


# ---- CONNECT


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_where_nobody_has_to_log_in_the_peer_is_let_in_at_once(command: str) -> None:
    talk = Talk(is_open=True, users=False)
    talk.say(command, accept_version="1.1,1.2", login="x", client_id="me")
    assert talk.told == [Stage.LET_IN]
    greeting = talk.machine.greeting
    assert greeting is not None
    assert (greeting.version, greeting.user, greeting.client_id) == (Version.V1_2, "x", "me")
    assert (talk.users.asked, talk.machine.principal.account) == ([], NOBODY)


def test_a_name_that_can_be_proved_is_checked_though_anybody_may_come() -> None:
    talk = Talk(is_open=True)
    connect(talk)
    assert talk.told == [Stage.CHECKING]


@pytest.mark.parametrize("held", [0.4, 12.0])
def test_a_login_that_is_not_looked_at_is_told_from_a_wrong_one(held: float) -> None:
    talk = Talk()
    talk.users.seconds = held
    connect(talk)
    talk.answer(False)
    ((_, headers, body),) = frames(talk.machine.last_word)
    assert headers["error-code"] == "too-many"
    assert headers["retry-after"] == str(math.ceil(held))
    assert f"try again in {math.ceil(held)} s" in body.decode()
    ending = talk.machine.ending
    assert ending is not None
    assert (ending.cause, ending.retry_after) == (Cause.LOGIN_REFUSED, math.ceil(held))


def test_a_wrong_password_is_not_waited_for_though_it_was_the_last_one_allowed() -> None:
    talk = Talk()
    connect(talk)
    talk.users.seconds = 12.0
    talk.answer(False)
    ((_, headers, _),) = frames(talk.machine.last_word)
    assert (headers["error-code"], headers.get("retry-after")) == ("not-authorized", None)


def test_a_login_that_is_remembered_comes_in_though_others_are_held() -> None:
    talk = Talk()
    talk.users.seconds = 12.0
    connect(talk)
    talk.answer(True)
    assert talk.machine.stage is Stage.LET_IN


def test_a_login_is_checked() -> None:
    talk = Talk()
    connect(talk)
    assert (talk.told, talk.users.asked) == ([Stage.CHECKING], [("ann", "p")])
    assert talk.machine.greeting is None, "nothing is agreed before the answer"


def test_what_is_refused_before_anybody_is_asked() -> None:
    for command, headers, cause, code, text in (
        ("SEND", {}, Cause.PROTOCOL_ERROR, "bad-frame", "must be CONNECT or STOMP, not SEND"),
        ("CONNECT", {"heart_beat": "a"}, Cause.REFUSED, "bad-header", "heart-beat 'a'"),
        ("CONNECT", {"accept_version": "9"}, Cause.PROTOCOL_ERROR, "bad-header", "Supported"),
        ("CONNECT", {}, Cause.LOGIN_REFUSED, "not-authorized", "needs the headers login"),
    ):
        talk = Talk()
        talk.say(command, **headers)
        assert talk.told == [Stage.REFUSED]
        assert talk.machine.ending is not None
        assert talk.machine.ending.cause is cause
        assert talk.error()[0] == code
        assert text in talk.error()[1]
        assert talk.users.asked == []


def test_bytes_that_are_no_frame_are_refused_and_an_attacker_hears_nothing() -> None:
    refusal = Refusal(code=Code.BAD_FRAME, text="No frame.")
    for silent in (False, True):
        talk = Talk()
        talk.machine.broken(FrameError(refusal, b"7", silent=silent))
        assert talk.told == [Stage.REFUSED]
        assert talk.machine.ending is not None
        assert talk.machine.ending.cause is Cause.PROTOCOL_ERROR
        assert talk.machine.ending.text == "No frame."
        assert bool(talk.machine.last_word) is not silent
        assert (b"receipt-id:7\n" in talk.machine.last_word) is not silent


# ---- CHECKING


def test_the_right_password_proves_who_it_is() -> None:
    talk = reached(Stage.CHECKING)
    talk.answer(True)
    assert talk.told == [Stage.CHECKING, Stage.LET_IN]
    assert talk.machine.principal.account == "ann"


def test_the_wrong_password_is_refused_and_proves_nothing() -> None:
    talk = reached(Stage.CHECKING)
    talk.answer(False)
    assert talk.told == [Stage.CHECKING, Stage.REFUSED]
    assert talk.machine.principal.account == NOBODY
    assert talk.machine.ending is not None
    assert talk.machine.ending.cause is Cause.LOGIN_REFUSED
    assert talk.error() == ("not-authorized", "User name [ann] or password is invalid.\n")


@pytest.mark.parametrize("good", [True, False])
def test_an_answer_that_comes_when_it_is_over_changes_nothing(good: bool) -> None:
    for leave in (True, False):
        talk = reached(Stage.CHECKING)
        if leave:
            talk.machine.leave()
        else:
            talk.machine.count(101)
            talk.machine.look_at_size()
        told = list(talk.told)
        talk.answer(good)
        assert talk.told == told
        assert talk.machine.stage is (Stage.LEFT if leave else Stage.REFUSED)


# ---- time and size


@pytest.mark.parametrize("stage", list(Stage))
def test_too_many_bytes_are_refused_while_it_is_not_over(stage: Stage) -> None:
    talk = reached(stage)
    told = list(talk.told)
    talk.machine.count(100)
    talk.machine.look_at_size()
    assert talk.told == told
    talk.machine.count(1)
    talk.machine.look_at_size()
    if stage in OVER:
        assert talk.told == told
    else:
        assert talk.told == [*told, Stage.REFUSED]
        assert talk.error()[0] == "too-large"


def test_a_connect_that_comes_too_late_is_refused() -> None:
    talk = reached(Stage.CONNECT)
    talk.machine.begin(5.0)
    assert talk.machine.look_at_time(6.0) == 15.0
    assert talk.machine.look_at_time(14.5) == 15.5
    assert talk.machine.look_at_time(15.0) is None
    assert talk.told == [Stage.REFUSED]
    assert talk.machine.ending is not None
    assert (talk.machine.ending.cause, talk.machine.ending.text) == (Cause.TIMED_OUT, "")
    assert talk.error()[0] == "not-authorized"


def test_a_password_that_is_being_checked_has_all_the_time() -> None:
    talk = reached(Stage.CHECKING)
    assert talk.machine.look_at_time(5.0) == 15.0
    assert talk.machine.look_at_time(500.0) == 501.0
    assert talk.told == [Stage.CHECKING]


# ---- every stage, every input


LEGAL = {
    Stage.CONNECT: {Input.WELCOME, Input.LOGIN, Input.BAD, Input.LOST},
    Stage.CHECKING: {Input.YES, Input.NO, Input.BAD, Input.LOST},
    Stage.LET_IN: set(),
    Stage.REFUSED: {Input.LOST},
    Stage.LEFT: set(),
}


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("what", list(Input))
def test_a_step_outside_the_table_asserts(stage: Stage, what: Input) -> None:
    machine = reached(stage).machine
    if what in LEGAL[stage]:
        machine._step(what)
        assert machine.over or machine.stage is Stage.CHECKING
        return
    with pytest.raises(AssertionError, match=f"{what.value} in stage {stage.value}"):
        machine._step(what)
    assert machine.stage is stage


def test_runs_and_routes_are_for_open_connections() -> None:
    machine = Talk().machine
    calls: list[Callable[[], object]] = [
        lambda: machine.run("route", [b""], []),
        machine.amid,
        lambda: machine.lead(Head("SEND", {}, -1)),
    ]
    for call in calls:
        with pytest.raises(AssertionError, match="before the login"):
            call()
