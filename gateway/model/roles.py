"""What the API and the console allow: four steps, each with all that the ones before it have.

    view ──> edit ──> manage ──> admin

    view      figures, lists, the configuration, metrics
    edit      messages: their content, and sending, moving, deleting them
    manage    addresses, queues, diverts, streams, connections
    admin     who may come in, the configuration, the disk

The words are Artemis' management permissions. Two needs are no role: `OPEN` asks for nobody, and
`ADDRESS` is judged by the function itself, by a permission at the address that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Role(Enum):
    """A step; the value is its key in `[api-roles]`. In order."""

    VIEW = "view"
    EDIT = "edit"
    MANAGE = "manage"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """How far up it is, from 0."""
        return _ORDER.index(self)


_ORDER: Final = tuple(Role)


class Need(Enum):
    """The least that a route asks for."""

    OPEN = "open"
    ADDRESS = "address"
    VIEW = "view"
    EDIT = "edit"
    MANAGE = "manage"
    ADMIN = "admin"

    @property
    def role(self) -> Role | None:
        """The least role; None where it is no role that counts."""
        return None if self in (Need.OPEN, Need.ADDRESS) else Role(self.value)


@dataclass(frozen=True, slots=True)
class ApiRoles:
    """Which roles of users stand for which step: by default one of the same name."""

    names: Mapping[Role, frozenset[str]] = field(
        default_factory=lambda: {role: frozenset({role.value}) for role in Role}
    )

    def highest(self, roles: Iterable[str]) -> Role | None:
        """Return the highest step that one of these roles stands for."""
        held = frozenset(roles)
        return next((role for role in reversed(_ORDER) if held & self.names[role]), None)

    def allow(self, need: Need, roles: frozenset[str]) -> bool:
        """Whether these roles are enough; ADDRESS is judged further where there is any role."""
        if need is Need.OPEN:
            return True
        least = need.role
        if least is None:
            return bool(roles)
        held = self.highest(roles)
        return held is not None and held.rank >= least.rank

    def administrators(self) -> str:
        """Return the roles that administrators have, for people."""
        return ", ".join(sorted(self.names[Role.ADMIN])) or "(none)"
