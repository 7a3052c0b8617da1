"""What a refusal is on the wire: condition, our code, and how long to wait."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import Symbol
from gateway.model.errors import STOPPING, Code, Refusal
from gateway.model.peers import Cause
from protocols.amqp.conditions import error_of
from protocols.amqp.performatives import Close, decode_performative, encode_performative
from tests.protocols.amqp.peer import Peer, of, parse


@pytest.mark.parametrize(
    ("refusal", "info"),
    [
        (Refusal(code=Code.NOT_FOUND, text="No."), {"x-reason": "not-found"}),
        (Refusal(code=Code.TOO_MANY, text="No."), {"x-reason": "too-many"}),
        (
            Refusal(code=Code.ADDRESS_FULL, text="No.", transient=True),
            {"x-reason": "address-full", "x-retry-after": 5},
        ),
        (
            Refusal(code=Code.DISK_FULL, text="No.", transient=True, wait=61.2),
            {"x-reason": "disk-full", "x-retry-after": 62},
        ),
    ],
)
def test_info_says_why_and_when_to_try_again(refusal: Refusal, info: dict[str, object]) -> None:
    error = error_of(refusal)
    assert error.info == info
    body = encode_performative(Close(error=error))
    close, _ = decode_performative(body, 0, len(body))
    assert close.error.info == info
    assert all(isinstance(key, Symbol) for key in close.error.info)


def test_a_stop_says_when_to_come_back() -> None:
    peer = Peer.begun()
    peer.engine.stop(peer.now)
    came, _ = parse(peer.engine.data_to_send())
    assert [one.error.info.get("x-retry-after") for one in of(came, Close)] == [5]
    ending = peer.engine.seen.ending
    assert ending is not None
    assert (ending.cause, ending.code, ending.retry_after) == (
        Cause.STOPPING,
        STOPPING.code,
        5,
    )
