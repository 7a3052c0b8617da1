"""What takes tokens of one AMQP connection: the gate, and the links that answers go on. Cold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.ports import Renewer
from gateway.model.principal import Principal
from gateway.model.token import CBS_NODE


class Replies(Protocol):
    """A link from `$cbs`; `address` is what the peer calls its end."""

    address: str | None

    def answer(self, message: bytes) -> None:
        """Send an answer once there is credit for it."""


class CbsNode:
    """That of one connection.

    Attributes:
        busy: a token is being judged.
        replies: links that answers go on.
    """

    __slots__ = ("_renewer", "busy", "replies")

    def __init__(self, renewer: Renewer | None) -> None:
        """Without a `renewer` no token is taken, and the links are refused."""
        self._renewer = renewer
        self.busy = False
        self.replies: list[Replies] = []

    def check(self) -> None:
        """Raise RefusedError where no token is taken."""
        if self._renewer is None:
            text = (
                f"{CBS_NODE} takes tokens, and this gateway knows no issuer of any (tokens.NAME)."
            )
            raise RefusedError.of(Code.NOT_FOUND, text)

    def renew(
        self, principal: Principal, token: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Judge a token; `done` is called later."""
        assert self._renewer is not None, "checked by the attach"
        self.busy = True

        def answered(refusal: Refusal | None) -> None:
            self.busy = False
            done(refusal)

        self._renewer.renew(principal, token, answered)

    def reply_to(self, address: str | None) -> Replies | None:
        """Return the link on which an answer goes: of that address, or the last that was opened."""
        for link in self.replies:
            if address is not None and link.address == address:
                return link
        return self.replies[-1] if self.replies else None
