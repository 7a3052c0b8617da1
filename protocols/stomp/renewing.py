"""A SEND to `$token`: its body is a later token, by which its connection goes on. Cold.

    good                RECEIPT, where one was asked for
    anything else       ERROR, behind which 1.0 and 1.1 go on by the token of before, and 1.2 ends

The frame leads to no address, and waits for no room: a token reaches no queue, and nothing keeps
it. One is judged at a time.
"""

from __future__ import annotations

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Renewer
from gateway.model.token import TOKEN_BYTES_MAX, TOKEN_DESTINATION
from protocols.stomp.connection import Connection
from protocols.stomp.frame import SEND, Head


class Renewing:
    """That of one connection."""

    __slots__ = ("_busy", "_connection", "_renewer")

    def __init__(self, connection: Connection, renewer: Renewer | None) -> None:
        """Without a `renewer` no token is taken."""
        self._connection = connection
        self._renewer = renewer
        self._busy = False

    def takes(self, head: Head) -> bool:
        """Whether a frame has a token for us."""
        return head.command == SEND and head.headers.get("destination") == TOKEN_DESTINATION

    def take(self, head: Head, body: bytes) -> None:
        """Judge a token; its answer comes on a later turn. Raises RefusedError."""
        if self._renewer is None:
            raise RefusedError.of(
                Code.NOT_AUTHORIZED,
                f"{TOKEN_DESTINATION} takes tokens, and this gateway knows no issuer of any.",
            )
        if "transaction" in head.headers:
            text = f"A SEND to {TOKEN_DESTINATION} has no place in a transaction."
            raise RefusedError.of(Code.BAD_HEADER, text)
        if len(body) > TOKEN_BYTES_MAX + 2:
            text = f"The token has {len(body)} bytes; the limit is {TOKEN_BYTES_MAX}."
            raise RefusedError.of(Code.TOO_LARGE, text)
        if self._busy:
            text = (
                "A token of this connection is being judged; send the next one behind its RECEIPT."
            )
            raise RefusedError.of(Code.TOO_MANY, text, transient=True)
        self._busy = True
        token, receipt = body.decode("utf-8", "replace").strip(), head.receipt

        def done(refusal: Refusal | None) -> None:
            self._busy = False
            self._connection.answer_later(refusal, receipt)

        self._renewer.renew(self._connection.principal, token, done)
