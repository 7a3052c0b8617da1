"""The address of a peer that knows at which door it stands. Pure."""

from __future__ import annotations

from typing import Self

from gateway.model.principal import By


class Remote(str):
    """An address without a port, equal to its text.

    Attributes:
        listener: where it came in: `acceptors.NAME` or `management`; empty: not told.
        protocol: that it speaks there.
        how: a login there is proved by.
    """

    __slots__ = ("how", "listener", "protocol")

    listener: str
    protocol: str
    how: By

    def __new__(
        cls, address: str, listener: str = "", protocol: str = "", how: By = By.PASSWORD
    ) -> Self:
        """Return the address."""
        made = super().__new__(cls, address)
        made.listener, made.protocol, made.how = listener, protocol, how
        return made

    def by(self, how: By) -> Self:
        """Return the same peer, whose login is proved in another way."""
        return type(self)(self, self.listener, self.protocol, how)
