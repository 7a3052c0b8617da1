"""The connections of each remote, and of each user, against their quotas.

A remote is known when it comes, and is refused then; a user when it has logged in, and is told so
in the words of its protocol before the connection is closed. Who is turned away counts for nobody.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IAddress

from gateway.model.errors import RefusedError
from gateway.model.peers import Peer
from gateway.model.quota import Scope, network_of
from gateway.quotas.meters import Meters, Names, Use

_ROW: Final = "connections"
_NO_ROLES: Final[frozenset[str]] = frozenset()


class Counted:
    """Those of one acceptor; without meters nothing is counted."""

    __slots__ = ("_meters", "_uses")

    def __init__(self, meters: Meters | None) -> None:
        self._meters = meters
        self._uses: dict[str, list[Use]] = {}

    def refuses(self, addr: IAddress | None) -> str:
        """Return why a remote may have no more; empty: it may."""
        if self._meters is None:
            return ""
        refusal = self._meters.room(_remote(addr), _NO_ROLES, _ROW)
        return "" if refusal is None else refusal.text

    def full(self, addr: IAddress | None) -> bool:
        """Whether a remote may have no more; that is not counted as in the way."""
        found = () if self._meters is None else self._meters.find(_remote(addr), _NO_ROLES)
        return any(meter.full(_ROW) is not None for meter in found)

    def came(self, name: str, addr: IAddress | None) -> None:
        """A connection was made."""
        if self._meters is not None:
            self._uses[name] = [self._meters.opened(_remote(addr), _NO_ROLES, _ROW)]

    def known(self, name: str, peer: Peer) -> None:
        """Its client was let in: it stays, unless its user has as many as it may."""
        if self._meters is None or name not in self._uses:
            return
        principal = peer.principal
        names = ((Scope.USER, principal.account),)
        try:
            self._uses[name].append(self._meters.opened(names, principal.roles, _ROW))
        except RefusedError as error:
            peer.dismiss(error.refusal)

    def gone(self, name: str) -> None:
        """It is over."""
        for use in self._uses.pop(name, ()):
            use.end()


def _remote(addr: IAddress | None) -> Names:
    return ((Scope.REMOTE, network_of(str(getattr(addr, "host", "") or "local"))),)
