"""What the shell needs of a protocol: its session, how it is made, and what that is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.model.peers import Peer
from gateway.model.principal import Principal


class Session(Protocol):
    """A protocol's sans-IO connection. Times are seconds of the injected clock.

    `choked` is set by the shell: the peer does not read its answers and is not read from, until
    `write_resumed` is called and takes it back.
    """

    wake: Callable[[], None]
    spent: Callable[[], bool]
    write_room: bool
    choked: bool
    retick: bool

    @property
    def closing(self) -> bool:
        """Whether the transport is to be closed once `data_to_send()` is written."""

    @property
    def behind(self) -> bool:
        """Whether what has come waits for another turn."""

    @property
    def paused_reading(self) -> bool:
        """Whether the session does not want to be told more now."""

    @property
    def seen(self) -> Peer:
        """The connection as an operator sees it."""

    def receive_data(self, data: bytes, now: float) -> None:
        """Act on what came; it is `behind` when `spent()` says that the rest has to wait."""

    def go_on(self, now: float) -> None:
        """Act on what waits, as far as `spent()` allows."""

    def data_to_send(self) -> bytes: ...

    def pieces(self, data: bytes, most: int) -> Sequence[bytes]:
        """Return what `data_to_send` has just returned in pieces, where messages carry it.

        Each is for one message. They have `most` bytes at most where it makes no difference to the
        peer how the output is cut.
        """

    def tick(self, now: float) -> float | None:
        """Do what is due; return when to be called again."""

    def connection_lost(self, now: float) -> None: ...

    def write_resumed(self) -> None: ...

    def stop(self, now: float) -> None:
        """The gateway is going down: say so in the protocol's words and close."""


def in_pieces(data: bytes, most: int) -> Sequence[bytes]:
    """Return data in pieces of `most` bytes; the last one has what is left."""
    if len(data) <= most:
        return (data,)
    return [data[at : at + most] for at in range(0, len(data), most)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFacts:
    """What is known of the other end before it has said anything.

    Attributes:
        own: our address there.
        certificate: what it has proved to have, in DER; None where it was not asked, or has none.
        principal: for whom it acts, where what carries its protocol has proved that.
    """

    address: str
    loopback: bool
    tls: bool
    name: str
    port: int = 0
    own: str = ""
    principal: Principal | None = None
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """What an acceptor needs to speak one protocol; `guess` is what its first bytes are told as.

    `name` is what it is called, where that is another word.
    """

    guess: str
    build: Callable[[PeerFacts], Session]
    name: str = ""
