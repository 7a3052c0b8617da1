"""What tests of permissions share: a gateway with a role for every need, and a user for each role.

The role `no-PERMISSION` may do all but that. The role `for-ROW` may do what a row of `ROWS` needs,
and nothing else. A user has the name of its role, and all have one password, hashed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from gateway.model.principal import Permission
from gateway.security.passwords import hash_password
from gateway.security.secret import Secret
from gateway.security.users import User, render_users
from gateway.trial.scratch import ScratchGateway

PASSWORD: Final = "one-for-all"
QUEUE: Final = "there.queue"
TOPIC: Final = "there.topic"

_P: Final = Permission
#: What a client does -> which permissions that needs. `None` stands for what no client can ask for
#: over AMQP or STOMP, so that all it can do is possible without it.
ROWS: Final[Mapping[str, frozenset[Permission]]] = {
    "send": frozenset({_P.SEND}),
    "consume": frozenset({_P.CONSUME}),
    "browse": frozenset({_P.BROWSE}),
    "make-address": frozenset({_P.SEND, _P.CREATE_ADDRESS}),
    "make-queue": frozenset({_P.SEND, _P.CREATE_ADDRESS, _P.CREATE_DURABLE_QUEUE}),
    "subscribe": frozenset({_P.CONSUME, _P.CREATE_NON_DURABLE_QUEUE}),
    "subscribe-durably": frozenset({_P.CONSUME, _P.CREATE_DURABLE_QUEUE}),
    "unsubscribe": frozenset({_P.CONSUME, _P.CREATE_DURABLE_QUEUE, _P.DELETE_DURABLE_QUEUE}),
    "temporary": frozenset({_P.CONSUME, _P.SEND, _P.CREATE_ADDRESS, _P.CREATE_NON_DURABLE_QUEUE}),
}
#: Permission -> what is done to need it.
SHOWN_BY: Final[Mapping[Permission, tuple[str, ...]]] = {
    one: tuple(row for row, needs in ROWS.items() if one in needs) for one in Permission
}
#: For the management API alone: clients of AMQP and STOMP ask for nothing
#: that needs them.
NOT_FOR_CLIENTS: Final = frozenset(
    {_P.DELETE_ADDRESS, _P.DELETE_NON_DURABLE_QUEUE, _P.MANAGE, _P.VIEW, _P.EDIT}
)


def settings_text(match: str = "#") -> str:
    """Return the security-settings, for all roles."""
    lines = [f'[security-settings."{match}"]']
    for permission in Permission:
        roles = [f"no-{other.value}" for other in Permission if other is not permission]
        roles += [f"for-{row}" for row, needs in ROWS.items() if permission in needs]
        lines.append(f"{permission.value} = {sorted(roles)}")
    return "\n".join(lines) + "\n"


CONFIG: Final = f"""
[addresses."{QUEUE}"]
queues = [{{ name = "{QUEUE}" }}]
[addresses."{TOPIC}"]
routing-type = "MULTICAST"
[acceptors.all]
protocols = ["AMQP", "STOMP", "WS"]
"""


def gateway_with_roles(
    folder: Path, tls: tuple[Path, Path] | None = None, more: str = ""
) -> ScratchGateway:
    """Return a gateway, not started, with its users and settings."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "gate.toml"
    config.write_text(CONFIG + settings_text() + more)
    gateway = ScratchGateway(folder, config=config, tls=tls)
    # Without an administrator no gateway starts that has security-settings.
    write_users(gateway, {name: frozenset({name}) for name in [*all_roles(), "admin"]})
    return gateway


def all_roles() -> list[str]:
    return [f"no-{one.value}" for one in Permission] + [f"for-{row}" for row in ROWS]


@cache
def _hashed() -> Secret:
    """Return the one hash: another one of the same password would be another password."""
    return hash_password(PASSWORD)


def write_users(gateway: ScratchGateway, roles: Mapping[str, frozenset[str]]) -> None:
    """Write the users file, whole at once: a running gateway looks at it."""
    users = [User(name=name, password=_hashed(), roles=has) for name, has in roles.items()]
    gateway.data.mkdir(parents=True, exist_ok=True)
    file = gateway.data / "users.toml"
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(render_users(users))
    new.replace(file)
