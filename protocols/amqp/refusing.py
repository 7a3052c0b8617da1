"""Which outcome a sender is told when its message was not taken [AMQP 3.5.3]. Cold; pure.

An outcome is one that the sender's source lists, or its default outcome. `accepted` never is: it
would say that the message is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.model.errors import Code, Refusal
from protocols.amqp.conditions import error_of
from protocols.amqp.performatives import Modified, Outcome, Rejected, Released, Source

_NAMES: Final = {
    Rejected: "amqp:rejected:list",
    Released: "amqp:released:list",
    Modified: "amqp:modified:list",
}
#: Outcomes that say no.
#: The message is as good as before, and its sender is to wait.
_UNHARMED: Final = (Code.DISK_FULL, Code.QUOTA_REACHED)
_No: TypeAlias = type[Rejected] | type[Released] | type[Modified]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Those of one link.

    Attributes:
        listed: descriptors of the outcomes that its source lists; none lists none.
        default: its default outcome, where that says no.
        prefers_modified: what may be taken later is given back as failed, not rejected.
    """

    listed: tuple[str, ...] = ()
    default: Rejected | Released | Modified | None = None
    prefers_modified: bool = False

    @property
    def rejects(self) -> bool:
        """Whether the source lists `rejected`, or nothing; if not, a detach has to say it."""
        return not self.listed or _NAMES[Rejected] in self.listed

    def to(self, refusal: Refusal) -> Outcome:
        """Return the outcome of what the broker did not take.

        A full disk, or a quota, gives the message back unharmed, for another try; anything else is
        rejected with its reason, or where it is preferred given back as failed when it may be taken
        later. A sender that lists neither gets its default, or what it lists that says no; one that
        leaves no such choice is told the truth, with a rejection.
        """
        rejected = Rejected(error=error_of(refusal))
        if not refusal.transient:
            return rejected
        if refusal.code in _UNHARMED and self._may(Released):
            return Released()
        if self.prefers_modified and _NAMES[Modified] in self.listed:
            return Modified(delivery_failed=True)
        if self._may(Rejected):
            return rejected
        match self.default:
            case Rejected() | None:
                pass
            case other:
                return other
        if self.default is None and _NAMES[Released] in self.listed:
            return Released()
        if self.default is None and _NAMES[Modified] in self.listed:
            return Modified(delivery_failed=True)
        return rejected

    def _may(self, kind: _No) -> bool:
        """Whether the source lists it; one that lists nothing means its default outcome."""
        if self.listed:
            return _NAMES[kind] in self.listed
        return self.default is None or isinstance(self.default, kind)


def answers_of(source: Source | None, *, prefers_modified: bool) -> Answers:
    """Return what a sender's source lets it be told."""
    if source is None:
        return Answers()
    default = source.default_outcome
    return Answers(
        listed=source.outcomes,
        default=default if isinstance(default, Rejected | Released | Modified) else None,
        prefers_modified=prefers_modified,
    )
