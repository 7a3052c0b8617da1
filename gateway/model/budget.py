"""Memory that many share: how much of it is held."""

from __future__ import annotations


class Budget:
    """Bytes that all connections of an acceptor may hold together: `held` of `maximum`."""

    __slots__ = ("held", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.held = 0
