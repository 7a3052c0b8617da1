"""How many links a connection has open, and for whom they count. Cold."""

from __future__ import annotations

from gateway.model.errors import Code, RefusedError
from gateway.model.objects import NOBODY, Kind, weight_of
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.outgoing import OutgoingLink
from protocols.amqp.performatives import ROLE_RECEIVER, Attach
from protocols.amqp.ports import Link


class OpenLinks:
    """Those of one connection: `count` of them, for `account`, who it has proved to be."""

    __slots__ = ("_limits", "account", "count")

    def __init__(self, limits: AmqpLimits) -> None:
        self._limits = limits
        self.count = 0
        self.account = NOBODY

    def check(self, attach: Attach) -> None:
        """Raise RefusedError (too-many) unless there may be one more."""
        most = self._limits.links_max
        if self.count >= most:
            text = f"This connection has {self.count} links; the limit is {most}."
            raise RefusedError.of(Code.TOO_MANY, text)
        objects, weight = self._limits.objects, weight_of(attach.name)
        objects.check(Kind.LINKS, self.account, weight)
        if attach.role is ROLE_RECEIVER:
            objects.check(Kind.CONSUMERS, self.account, weight)

    def opened(self, link: Link) -> None:
        """Count one that is there."""
        self.count += 1
        for kind in _kinds(link):
            self._limits.objects.add(kind, self.account, weight_of(link.name))

    def gone(self, link: Link) -> None:
        """Count one that is not there any more."""
        self.count -= 1
        for kind in _kinds(link):
            self._limits.objects.remove(kind, self.account, weight_of(link.name))


def _kinds(link: Link) -> tuple[Kind, ...]:
    return (Kind.LINKS, Kind.CONSUMERS) if isinstance(link, OutgoingLink) else (Kind.LINKS,)
