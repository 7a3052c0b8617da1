"""Clauses of AMQP 1.0, part 5.3: SASL, where anybody may come in, and where one user may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.trial.scratch import ScratchGateway
from protocols.amqp.performatives import (
    Composite,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from tests.conformance.clauses import Socket, Talk, listed, symbol
from tests.interop.support import add_user
from tests.protocols.amqp.peer import AMQP_HEADER, SASL_HEADER, frame, of, raw_frame

pytestmark = pytest.mark.timeout(60)

OPENED = (AMQP_HEADER, frame(Open(container_id="c")))
BEGINNING = ("header SASL", "mechanisms")


def sasl(performative: Composite | bytes, *, channel: int = 0, doff: int = 2) -> bytes:
    body = frame(performative)[8:]
    return raw_frame(body, kind=1, channel=channel, doff=doff)


ANONYMOUS = sasl(SaslInit(mechanism="ANONYMOUS"))


def plain(password: str, *, user: str = "ann") -> bytes:
    return sasl(SaslInit(mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode()))


@pytest.fixture(scope="module")
def guarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    """A gateway that knows `ann`, and nobody else."""
    gateway = ScratchGateway(tmp_path_factory.mktemp("guarding"))
    add_user(gateway, "ann", "secret")
    with gateway:
        yield gateway


@pytest.fixture
def guarded(guarding: ScratchGateway) -> Iterator[Talk]:
    talking = Talk(Socket(guarding.port), "q")
    yield talking
    talking.finish()


# ---- anybody


def test_5_3_2_mechanisms_then_init_then_outcome_then_amqp(talk: Talk):
    (offer,) = of(talk.says(SASL_HEADER).hears(*BEGINNING), SaslMechanisms)
    assert "ANONYMOUS" in offer.sasl_server_mechanisms
    assert "PLAIN" in offer.sasl_server_mechanisms
    talk.says(ANONYMOUS).hears("outcome 0")
    talk.says(*OPENED).hears("header AMQP", "open")


def test_5_3_2_everything_may_come_in_one_piece(talk: Talk):
    talk.says(SASL_HEADER, ANONYMOUS, *OPENED)
    talk.hears(*BEGINNING, "outcome 0", "header AMQP", "open")


def test_5_3_1_frames_come_in_pieces(talk: Talk):
    said = SASL_HEADER + ANONYMOUS + b"".join(OPENED)
    for at in range(0, len(said), 3):
        talk.says(said[at : at + 3])
    talk.hears(*BEGINNING, "outcome 0", "header AMQP", "open")


@pytest.mark.parametrize(("channel", "doff"), [(7, 2), (65535, 2), (0, 3), (0, 200)])
def test_5_3_1_the_channel_and_an_extended_header_are_ignored(talk: Talk, channel, doff):
    init = sasl(SaslInit(mechanism="ANONYMOUS"), channel=channel, doff=doff)
    talk.says(SASL_HEADER, init, *OPENED)
    talk.hears(*BEGINNING, "outcome 0", "header AMQP", "open")


@pytest.mark.parametrize("name", ["NOT-A-MECHANISM", "", "anonymous", "GSSAPI"])
def test_5_3_2_a_mechanism_that_was_not_offered_is_a_failed_login(talk: Talk, name):
    came = talk.says(SASL_HEADER, sasl(SaslInit(mechanism=name))).hears(
        *BEGINNING, "outcome 1", "cut"
    )
    assert of(came, SaslOutcome)[0].additional_data is None


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(SaslMechanisms(sasl_server_mechanisms=("MINE",)), id="mechanisms"),
        pytest.param(SaslChallenge(challenge=b""), id="challenge"),
        pytest.param(SaslOutcome(code=0), id="outcome"),
        pytest.param(SaslResponse(response=b"x"), id="response"),
        pytest.param(Open(container_id="c"), id="open"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff", id="noise"),
        pytest.param(listed(0x41), id="init without mechanism"),
        pytest.param(listed(0x41, symbol(b"\xff")), id="init beyond ASCII"),
        pytest.param(listed(0x41, symbol("ANONYMOUS")) + b"x", id="init with a payload"),
    ],
)
def test_5_3_2_another_frame_than_an_init_ends_it(talk: Talk, said):
    body = said if isinstance(said, bytes) else frame(said)[8:]
    talk.says(SASL_HEADER, raw_frame(body, kind=1), *OPENED)
    talk.hears(*BEGINNING, "outcome 3", "cut")


@pytest.mark.parametrize("kind", [0, 2])
def test_5_3_1_a_frame_that_is_none_of_sasls_passes_nobody(talk: Talk, kind):
    init = frame(SaslInit(mechanism="ANONYMOUS"), kind=kind)
    talk.says(SASL_HEADER, init, *OPENED).hears(*BEGINNING, "cut")


def test_5_3_1_an_open_passes_nobody(talk: Talk):
    talk.says(SASL_HEADER, *OPENED).hears(*BEGINNING, "cut")


@pytest.mark.parametrize(("size", "doff"), [(7, 2), (8, 1), (8, 3), (100_000, 2)])
def test_5_3_1_a_frame_whose_size_cannot_be_ends_it(talk: Talk, size, doff):
    head = raw_frame(b"\0" * 24, kind=1, size=size, doff=2)
    talk.says(SASL_HEADER, head[:4] + bytes([doff]) + head[5:]).hears(*BEGINNING, "cut")


def test_5_3_2_sasl_happens_once(talk: Talk):
    talk.says(SASL_HEADER, ANONYMOUS, SASL_HEADER)
    talk.hears(*BEGINNING, "outcome 0", "header AMQP", "cut")


def test_5_3_2_what_comes_behind_the_outcome_is_amqp(talk: Talk):
    talk.says(SASL_HEADER, ANONYMOUS, ANONYMOUS)
    talk.hears(*BEGINNING, "outcome 0", "header AMQP", "cut")


# ---- somebody


def test_5_3_2_a_password_in_the_first_response(guarded: Talk):
    (offer,) = of(guarded.says(SASL_HEADER).hears(*BEGINNING), SaslMechanisms)
    assert "ANONYMOUS" not in offer.sasl_server_mechanisms
    guarded.says(plain("secret"), *OPENED).hears("outcome 0", "header AMQP", "open")


def test_5_3_2_a_password_that_is_asked_for(guarded: Talk):
    guarded.says(SASL_HEADER, sasl(SaslInit(mechanism="PLAIN"))).hears(*BEGINNING, "saslchallenge")
    guarded.says(sasl(SaslResponse(response=b"\0ann\0secret")), *OPENED)
    guarded.hears("outcome 0", "header AMQP", "open")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(plain("wrong"), id="password"),
        pytest.param(plain("secret", user="bob"), id="user"),
        pytest.param(ANONYMOUS, id="anonymous"),
        pytest.param(sasl(SaslInit(mechanism="EXTERNAL", initial_response=b"ann")), id="external"),
    ],
)
def test_5_3_2_who_is_not_known_gets_outcome_1_and_the_end(guarded: Talk, said):
    guarded.says(SASL_HEADER, said, *OPENED).hears(*BEGINNING, "outcome 1", "cut")


def test_5_3_2_nobody_comes_in_without_sasl(guarded: Talk):
    guarded.says(*OPENED).hears("header SASL", "cut")


def test_5_3_2_a_second_init_does_not_pass(guarded: Talk):
    guarded.says(SASL_HEADER, sasl(SaslInit(mechanism="PLAIN")), plain("secret"), *OPENED)
    guarded.hears(*BEGINNING, "saslchallenge", "outcome 3", "cut")
