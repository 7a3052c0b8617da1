"""What principals were allowed and still have: routes, subscriptions, replays. Judged again.

    held ──given back──> gone
      └──judged again (other settings, other roles)──allowed──> held
                                                   └──denied──> gone, its holder is told

A holder is judged when it opens something, and not while it uses that. So all that is held is
judged again when settings or roles change: in slices, each in a turn of its own. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.model.errors import Refusal, RefusedError
from gateway.model.principal import Permission, Principal

#: What one slice may do, where judging is 1: about 2 ms.
SLICE: Final = 1000
#: To end something costs as much as to judge so many.
ENDING: Final = 40


class Grant:
    """One thing that a principal was allowed: `give_back` when it is over."""

    __slots__ = (
        "_ended",
        "_grants",
        "address",
        "held",
        "permission",
        "principal",
        "queue",
        "waits",
    )

    def __init__(
        self,
        grants: Grants,
        principal: Principal,
        permission: Permission,
        address: str,
        queue: str | None,
        *,
        ended: Callable[[Refusal], None],
    ) -> None:
        self._grants = grants
        self._ended = ended
        self.principal = principal
        self.permission = permission
        self.address = address
        self.queue = queue
        self.held = True
        self.waits = False  # to be judged again

    def give_back(self) -> None:
        """Its holder is done with it; a second time changes nothing."""
        if self.held:
            self.held = False
            self._grants.forget(self)

    def judge(self) -> bool:
        """Judge it once more; returns False when it ended by that."""
        try:
            self.principal.check(self.permission, self.address, self.queue)
        except RefusedError as error:
            self.give_back()
            self._ended(error.refusal)
            return False
        return True


class Grants:
    """See the module text.

    Attributes:
        ended: how many were taken away.
    """

    __slots__ = ("_changed", "_due", "_held", "_later", "_waiting", "ended")

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        """`later` runs an action in a turn of its own."""
        self._later = later
        self._held: dict[Principal, dict[Grant, None]] = {}
        self._changed: dict[Principal, Callable[[], None]] = {}
        self._waiting: deque[Grant] = deque()
        self._due = False  # a slice comes
        self.ended = 0

    @property
    def count(self) -> int:
        """How many are held."""
        return sum(len(held) for held in self._held.values())

    @property
    def judging(self) -> bool:
        """Whether some wait to be judged again."""
        return bool(self._waiting)

    def hold(
        self,
        principal: Principal | None,
        permission: Permission,
        address: str,
        queue: str | None,
        ended: Callable[[Refusal], None],
    ) -> Grant | None:
        """Keep what was judged just now; `ended` is called once it is allowed no more.

        None for the gateway itself, which is never judged.
        """
        if principal is None:
            return None
        held = self._held.get(principal)
        if held is None:
            held = self._held[principal] = {}
            self._changed[principal] = partial(self._judge, held)
            principal.changed.append(self._changed[principal])
        grant = Grant(self, principal, permission, address, queue, ended=ended)
        held[grant] = None
        return grant

    def forget(self, grant: Grant) -> None:
        """See `Grant.give_back`."""
        held = self._held[grant.principal]
        del held[grant]
        if not held:
            del self._held[grant.principal]
            grant.principal.changed.remove(self._changed.pop(grant.principal))

    def judge_all(self) -> None:
        """Have all of them judged again, since settings have changed."""
        for held in self._held.values():
            self._judge(held)

    def _judge(self, held: dict[Grant, None]) -> None:
        for grant in held:
            if not grant.waits:
                grant.waits = True
                self._waiting.append(grant)
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._due:
            self._due = True
            self._later(self._slice)

    def _slice(self) -> None:
        self._due = False
        waiting, left = self._waiting, SLICE
        try:
            while waiting and left > 0:
                grant = waiting.popleft()
                grant.waits = False
                left -= 1
                if grant.held and not grant.judge():
                    left -= ENDING
                    self.ended += 1
        finally:
            self._go_on()  # whatever a holder did when it was told
