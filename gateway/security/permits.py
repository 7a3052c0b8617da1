"""The judge: whether a principal may do what it asks for, by the settings in force. Pure.

    the settings name a role that it has ──> let go on
    else ──> refused: in full to log and audit, to the peer as far as it may know

A peer is told what was refused, where, and which permission is missing. Which roles have that, and
where it is written, only those are told who may manage there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from gateway.addresses.permissions import PermissionEntry, PermissionTable
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import Permission, Principal

#: What a permission allows, in front of the place where it does.
_DOING: Final = {
    Permission.SEND: "send to",
    Permission.CONSUME: "consume from",
    Permission.BROWSE: "browse",
    Permission.CREATE_ADDRESS: "create the address",
    Permission.DELETE_ADDRESS: "delete the address",
    Permission.CREATE_DURABLE_QUEUE: "create a durable queue at",
    Permission.DELETE_DURABLE_QUEUE: "delete a durable queue of",
    Permission.CREATE_NON_DURABLE_QUEUE: "create a queue that is not durable at",
    Permission.DELETE_NON_DURABLE_QUEUE: "delete a queue that is not durable of",
    Permission.MANAGE: "manage",
    Permission.VIEW: "view",
    Permission.EDIT: "edit",
}
_READS: Final = (Permission.CONSUME, Permission.BROWSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """One refusal, for the record.

    Attributes:
        principal: who was refused.
        permission: what is missing.
        address, queue: where.
        entry: what had the say; without a match where none fits.
    """

    principal: Principal
    permission: Permission
    address: str
    queue: str | None
    entry: PermissionEntry

    @property
    def place(self) -> str:
        """Return the address, or its queue, as clients write it."""
        queue = self.queue
        return self.address if queue in (None, self.address) else f"{self.address}::{queue}"

    @property
    def wanted(self) -> list[str]:
        """Return the roles that would do."""
        return sorted(self.entry.roles_for(self.permission))

    @property
    def short(self) -> str:
        """Say it as every peer may know it."""
        user = self.principal.user
        who = "A client without a user" if not user else f"User {user!r}"
        key = self.permission.value
        return (
            f"{who} may not {_DOING[self.permission]} {self.place!r}: no role of it has the "
            f"permission {key!r} there. Ask whoever runs this gateway for that."
        )

    @property
    def full(self) -> str:
        """Say it as those may know it who run the gateway."""
        user, key = self.principal.user, self.permission.value
        has = ", ".join(sorted(self.principal.roles)) or "none"
        who = "A client without a user" if not user else f"User {user!r}"
        begin = f"{who} (roles: {has}) may not {_DOING[self.permission]} {self.place!r}:"
        if not self.entry.match:
            return (
                f"{begin} no [security-settings] match fits that, and what none fits is denied. "
                f"Write one with {key} = [...]."
            )
        where = self.entry.where(self.permission)
        named = f'[security-settings."{self.entry.match}"]' + (f", {where}" if where else "")
        if not self.wanted:
            return f"{begin} no role may, since {named} gives {key} to nobody. Add it there."
        roles = ", ".join(self.wanted)
        one = "the role" if len(self.wanted) == 1 else "one of the roles"
        return f"{begin} that needs {one} {roles} ({key} in {named})."


class Permits:
    """Implements `Judge` with a table of the configuration.

    Attributes:
        table: the settings in force.
        refused: how many times it said no.
    """

    __slots__ = ("_tell", "refused", "table")

    def __init__(self, table: PermissionTable, tell: Callable[[Denied], None]) -> None:
        """`tell` hears of each refusal."""
        self.table = table
        self.refused = 0
        self._tell = tell

    def check(
        self, principal: Principal, permission: Permission, address: str, queue: str | None
    ) -> None:
        """See `Judge`."""
        roles = principal.roles
        reads = permission in _READS
        for entry in self.table.entries_for(address, queue, reads=reads):
            if roles.isdisjoint(entry.roles_for(permission)):
                self._refuse(
                    Denied(
                        principal=principal,
                        permission=permission,
                        address=address,
                        queue=queue,
                        entry=entry,
                    )
                )

    def allows(
        self, principal: Principal, permission: Permission, address: str, queue: str | None = None
    ) -> bool:
        """As `check`, for those who only want to know: nothing is told or counted."""
        found = self.table.entries_for(address, queue, reads=permission in _READS)
        return not any(principal.roles.isdisjoint(one.roles_for(permission)) for one in found)

    def _refuse(self, denied: Denied) -> NoReturn:
        self.refused += 1
        self._tell(denied)
        knows = self.allows(denied.principal, Permission.MANAGE, denied.address, denied.queue)
        raise RefusedError.of(Code.NOT_AUTHORIZED, denied.full if knows else denied.short)
