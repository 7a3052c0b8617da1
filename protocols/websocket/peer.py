"""A WebSocket connection as an operator sees it: as the connection of what is inside. Cold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.model.errors import Refusal
from gateway.model.peers import ConsumerState, Ending, Peer, PeerState, SessionState
from gateway.model.principal import ANYBODY, Principal

_UNKNOWN = PeerState(
    protocol="WebSocket",
    version="",
    user=None,
    client_id="",
    product="",
    product_version="",
    messages_in=0,
    messages_out=0,
)


class WebSocketPeer:
    """Implements the Peer port.

    Attributes:
        known: its client was let in.
    """

    __slots__ = ("_dismissed", "_ending", "_inside", "known", "on_login")

    def __init__(self, dismissed: Callable[[Refusal], None]) -> None:
        """`dismissed` is called by an operator's wish to end it with nothing inside yet."""
        self.known = False
        self.on_login: Callable[[], None] = _nobody
        self._dismissed = dismissed
        self._ending: Ending | None = None
        self._inside: Peer | None = None

    def show(self, inside: Peer) -> None:
        """Show what is inside from now on."""
        self._inside = inside
        inside.on_login = self._logged_in

    def _logged_in(self) -> None:
        self.known = True
        self.on_login()

    def end(self, ending: Ending) -> None:
        """Remember why WebSocket itself ended, where nothing else has ended it before."""
        if self.ending is None:
            self._ending = ending

    @property
    def ending(self) -> Ending | None:
        """See the Peer port."""
        if self._ending is None and self._inside is not None:
            return self._inside.ending
        return self._ending

    @property
    def principal(self) -> Principal:
        """See the Peer port."""
        return ANYBODY if self._inside is None else self._inside.principal

    def state(self) -> PeerState:
        """See the Peer port."""
        return _UNKNOWN if self._inside is None else self._inside.state()

    def sessions(self) -> list[SessionState]:
        """See the Peer port."""
        return [] if self._inside is None else self._inside.sessions()

    def consumers(self) -> list[ConsumerState]:
        """See the Peer port."""
        return [] if self._inside is None else self._inside.consumers()

    def addresses(self) -> Iterable[str]:
        """See the Peer port."""
        return () if self._inside is None else self._inside.addresses()

    def dismiss(self, refusal: Refusal) -> None:
        """See the Peer port."""
        if self._inside is None:
            self._dismissed(refusal)
        else:
            self._inside.dismiss(refusal)

    def end_consumer(self, number: int, refusal: Refusal) -> bool:
        """See the Peer port."""
        return self._inside is not None and self._inside.end_consumer(number, refusal)


def _nobody() -> None:
    """Stand for the log until it listens."""
