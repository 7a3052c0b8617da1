"""When a message came in, written into the message: `enable-ingress-timestamp` of an address.

    AMQP     message-annotation x-opt-ingress-time, ms since the epoch
    STOMP    header ingress-timestamp, the same; conversion makes the one of the other

What the sender says of it itself is replaced. Bytes that are no AMQP message go on as they are.
Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.model import stomp_form
from gateway.model.amqp_types import DecodeError
from gateway.model.message import STOMP
from gateway.model.run import Run
from gateway.model.sections import with_annotations

ANNOTATION: Final = "x-opt-ingress-time"
HEADER: Final = "ingress-timestamp"
_LINE: Final = f"\n{HEADER}:".encode("ascii")


def stamp(body: bytes, flags: int, now_ms: int) -> bytes:
    """Return a stored message that tells when it came in."""
    if flags & STOMP:
        line = ((HEADER, str(now_ms)),)
        if _LINE in body:
            return stomp_form.with_headers(body, line)
        return stomp_form.with_new_headers(body, line)
    try:
        return with_annotations(body, {ANNOTATION: now_ms})
    except DecodeError:
        return body


def stamp_run(run: Run, now_ms: int) -> Run:
    """As `stamp`, for a run."""
    return run.of([stamp(body, run.flags, now_ms) for body in run.bodies])
