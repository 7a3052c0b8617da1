"""Every frame in every state of a connection and a session: what is allowed, what ends what.

One row for each pair. `-` nothing happens; `cut` the transport is closed without an AMQP close, as
the peer does not speak AMQP yet; otherwise the frames of the answer, with the condition of the one
that carries an error. After `close` the transport is closed as well.
"""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, Refusal
from protocols.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    RECEIVER,
    SASL_HEADER,
    SENDER,
    Peer,
    condition,
    data_message,
    frame,
    names,
    raw_frame,
)

ATTACH = Attach(
    name="new",
    handle=7,
    role=SENDER,
    source=Source(),
    target=Target(address="q"),
    initial_delivery_count=0,
)
BEGIN = Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)
FLOW = Flow(next_incoming_id=1, incoming_window=9, next_outgoing_id=0, outgoing_window=9)
INIT = SaslInit(mechanism="ANONYMOUS")
INPUTS = {
    "amqp-header": AMQP_HEADER,
    "sasl-header": SASL_HEADER,
    "empty": raw_frame(b""),
    "open": frame(Open(container_id="x")),
    "begin": frame(BEGIN),
    "begin-other": frame(BEGIN, 5),
    "attach": frame(ATTACH),
    "attach-other": frame(ATTACH, 5),
    "flow": frame(FLOW),
    "transfer": frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), 0, data_message(b"x")),
    "disposition": frame(Disposition(role=RECEIVER, first=1, settled=True, state=ACCEPTED)),
    "detach": frame(Detach(handle=0, closed=True)),
    "end": frame(End()),
    "close": frame(Close()),
    "sasl-init": frame(INIT, kind=1),
    "sasl-response": frame(SaslResponse(response=b""), kind=1),
    "sasl-challenge": frame(SaslChallenge(challenge=b""), kind=1),
    "sasl-mechanisms": frame(SaslMechanisms(sasl_server_mechanisms=("PLAIN",)), kind=1),
    "sasl-outcome": frame(SaslOutcome(code=0), kind=1),
    "sasl-as-amqp": frame(INIT),
    "open-as-sasl": frame(Open(container_id="x"), kind=1),
}


def header() -> Peer:
    return Peer()


def sasl() -> Peer:
    peer = Peer()
    peer.say(SASL_HEADER)
    return peer


def passed() -> Peer:
    peer = sasl()
    peer.say(INPUTS["sasl-init"])
    return peer


def opening() -> Peer:
    peer = passed()
    peer.say(AMQP_HEADER)
    return peer


def linked() -> Peer:
    peer = Peer.begun()
    peer.sender(0)
    peer.receiver(1)
    return peer


def detached() -> Peer:
    """We detached handle 0, the peer has not answered."""
    peer = Peer.begun()
    peer.broker.refuse_open = Refusal(code=Code.NOT_FOUND, text="Address 'q' does not exist.")
    assert names(peer.sender(0)) == ["attach", "detach"]
    peer.broker.refuse_open = None
    return peer


def ended() -> Peer:
    """We ended the session, the peer has not answered."""
    peer = Peer.begun()
    assert names(peer.tell(Detach(handle=9))) == ["end"]
    return peer


def closed() -> Peer:
    peer = Peer.begun()
    peer.tell(Close())
    return peer


STATES = {
    "header": header,
    "sasl": sasl,
    "passed": passed,
    "opening": opening,
    "opened": Peer.opened,
    "begun": Peer.begun,
    "linked": linked,
    "detached": detached,
    "ended": ended,
    "closed": closed,
}
FRAMING = "close amqp:connection:framing-error"
ILLEGAL = "close amqp:illegal-state"
NO_SESSION = "close amqp:not-allowed"
UNATTACHED = "end amqp:session:unattached-handle"
#: What an open connection does, in whatever state its sessions are.
OPENED = {
    "amqp-header": FRAMING,
    "sasl-header": FRAMING,
    "empty": "-",
    "open": ILLEGAL,
    "begin": "begin",
    "begin-other": "begin",
    "attach": NO_SESSION,
    "attach-other": NO_SESSION,
    "flow": NO_SESSION,
    "transfer": NO_SESSION,
    "disposition": NO_SESSION,
    "detach": NO_SESSION,
    "end": NO_SESSION,
    "close": "close",
    "sasl-init": FRAMING,
    "sasl-response": FRAMING,
    "sasl-challenge": FRAMING,
    "sasl-mechanisms": FRAMING,
    "sasl-outcome": FRAMING,
    "sasl-as-amqp": FRAMING,
    "open-as-sasl": FRAMING,
}
BEGUN = {
    **OPENED,
    "begin": ILLEGAL,
    "attach": "attach flow",
    "flow": "-",
    "transfer": UNATTACHED,
    "disposition": "-",
    "detach": UNATTACHED,
    "end": "end",
}
WRONG_FIRST = f"open {ILLEGAL}"
TABLE: dict[str, dict[str, str]] = {
    # [AMQP 2.2, 5.3.1]: anything but a header that is spoken is answered with one that is.
    "header": {
        **dict.fromkeys(INPUTS, "header cut"),
        "amqp-header": "header",
        "sasl-header": "header saslmechanisms",
    },
    # [AMQP 5.3.2]: only sasl-init; what no SASL frame can be is not answered at all.
    "sasl": {
        **dict.fromkeys(INPUTS, "cut"),
        "sasl-init": "sasloutcome",
        "sasl-response": "sasloutcome cut",
        "sasl-challenge": "sasloutcome cut",
        "sasl-mechanisms": "sasloutcome cut",
        "sasl-outcome": "sasloutcome cut",
        "open-as-sasl": "sasloutcome cut",
    },
    # After the outcome comes the AMQP header and nothing else.
    "passed": {**dict.fromkeys(INPUTS, "header cut"), "amqp-header": "header"},
    # [AMQP 2.4.1]: open first; a refusal is told by open and close [AMQP 2.4.3].
    "opening": {
        **dict.fromkeys(INPUTS, WRONG_FIRST),
        "amqp-header": f"open {FRAMING}",
        "sasl-header": f"open {FRAMING}",
        "empty": "-",
        "open": "open",
        "sasl-init": f"open {FRAMING}",
        "sasl-response": f"open {FRAMING}",
        "sasl-challenge": f"open {FRAMING}",
        "sasl-mechanisms": f"open {FRAMING}",
        "sasl-outcome": f"open {FRAMING}",
        "sasl-as-amqp": f"open {FRAMING}",
        "open-as-sasl": f"open {FRAMING}",
    },
    "opened": OPENED,
    "begun": BEGUN,
    "linked": {**BEGUN, "transfer": "disposition", "detach": "detach"},
    # What was under way when we detached is passed over [AMQP 2.6.6].
    "detached": {**BEGUN, "transfer": "-", "detach": "-"},
    # What was under way when we ended is passed over [AMQP 2.5.5].
    "ended": {
        **BEGUN,
        "attach": "-",
        "transfer": "-",
        "detach": "-",
        "end": "-",
    },
    # [AMQP 2.4.6]: close was the last word.
    "closed": dict.fromkeys(INPUTS, "-"),
}


def test_every_pair_has_its_row():
    assert set(TABLE) == set(STATES)
    for state, row in TABLE.items():
        assert set(row) == set(INPUTS), state


@pytest.mark.parametrize("given", sorted(INPUTS))
@pytest.mark.parametrize("state", sorted(STATES))
def test_frame_in_state(state, given):
    peer = STATES[state]()
    came = peer.say(INPUTS[given])
    words = names(came)
    error = condition(came)
    if error:
        assert words[-1] == error.split()[0]
        words[-1] = error
    if peer.gone and "close" not in words[-1:] and not error and state != "closed":
        words.append("cut")
    assert " ".join(words or ["-"]) == TABLE[state][given]
    assert peer.gone is (state == "closed" or "cut" in words or "close" in " ".join(words))


@pytest.mark.parametrize("given", sorted(INPUTS))
@pytest.mark.parametrize("state", sorted(STATES))
def test_frame_in_state_leaves_nothing_behind(state, given):
    """Whatever came, once the transport is gone the broker holds nothing of this connection."""
    peer = STATES[state]()
    peer.say(INPUTS[given])
    peer.engine.connection_lost(peer.now)
    broker = peer.broker
    assert len(broker.of("close producer")) == len(broker.of("open producer"))
    assert len(broker.of("close subscription")) == len(broker.of("subscribe"))
    assert not broker.temporaries
    assert not peer.engine.sessions
    assert peer.engine.links == 0


@pytest.mark.parametrize(
    ("state", "given", "text"),
    [
        ("opening", "flow", "The first frame must be an open; yours is flow."),
        ("opened", "open", "A second open came; a connection is opened once."),
        ("opened", "end", "A frame came on channel 0, on which no session was begun."),
        ("begun", "begin", "Channel 0 has a session already."),
        ("opened", "sasl-init", "A frame of type 1 came; only type 0 is spoken after login."),
        (
            "opened",
            "sasl-as-amqp",
            "A sasl-init came in an AMQP frame; SASL has frames of type 1, and is over.",
        ),
        (
            "begun",
            "transfer",
            "A transfer came on handle 0, on which nothing may be sent.",
        ),
        (
            "begun",
            "detach",
            "A detach came for handle 0, on which nothing is attached.",
        ),
    ],
)
def test_errors_say_what_and_where(state, given, text):
    came = STATES[state]().say(INPUTS[given])
    assert came[-1].performative.error.description == text
