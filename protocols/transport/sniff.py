"""Tells protocols apart by the first bytes of a connection. Pure; decides on at most 24 bytes."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Guess(Enum):
    """What the first bytes are."""

    MORE = "more"  # too few to tell
    AMQP = "AMQP"
    STOMP = "STOMP"
    HTTP = "HTTP"
    TLS = "TLS"
    UNKNOWN = "unknown"


_WORDS: Final = (
    (b"AMQP", Guess.AMQP),
    (b"CONNECT\n", Guess.STOMP),
    (b"CONNECT\r\n", Guess.STOMP),
    (b"STOMP\n", Guess.STOMP),
    (b"STOMP\r\n", Guess.STOMP),
    *(
        (verb + b" ", Guess.HTTP)
        for verb in (
            b"GET",
            b"POST",
            b"HEAD",
            b"PUT",
            b"DELETE",
            b"OPTIONS",
            b"PATCH",
            b"TRACE",
            b"CONNECT",
        )
    ),
    (b"PRI * HTTP/2.0\r\n", Guess.HTTP),
    (b"\x16\x03", Guess.TLS),
)
#: Line ends that a STOMP client may send ahead of its first frame; more is noise.
_EOLS_MAX: Final = 16


def sniff(data: bytes) -> Guess:
    """Return what `data`, all that has come so far, begins."""
    head = data.lstrip(b"\r\n")
    eols = len(data) - len(head)
    if eols > _EOLS_MAX:
        return Guess.UNKNOWN
    for word, guess in _WORDS:
        if head.startswith(word):
            # Only STOMP lets line ends come first.
            return guess if not eols or guess is Guess.STOMP else Guess.UNKNOWN
    if any(word.startswith(head) for word, _ in _WORDS):
        return Guess.MORE
    return Guess.UNKNOWN
