"""Whether anybody is left who may administer the gateway over its API. Pure.

Only where permissions are judged: else whoever is let in may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.errors import Problem
from gateway.config.tree import Config
from gateway.model.roles import Role

_KEY = "api-roles.admin"


def permissions_judged(config: Config) -> bool:
    """Whether permissions are judged: as soon as one table `[security-settings]` is written."""
    return any(key.split(".")[0] == "security-settings" for key in config.origins)


def other_realms(config: Config) -> bool:
    """Whether users are known elsewhere than in the users file."""
    return bool(config.ldap.url) or bool(config.tokens)


def _by_token(config: Config, held: list[frozenset[str]]) -> bool:
    """Add the roles that tokens may give; True: an issuer's tokens may give any."""
    for issuer in config.tokens:
        if issuer.role_claims and not issuer.role_map:
            return True
        held += [frozenset(roles) for roles in issuer.role_map.values()]
    return False


def lockout_problem(config: Config, users: Iterable[frozenset[str]]) -> Problem | None:
    """Return what is wrong when neither a user nor a group of the directory may administer.

    `users` are the roles of each user of the file.
    """
    if not permissions_judged(config):
        return None
    api = config.api_roles.roles()
    held = [*users, *(config.ldap.roles.values() if config.ldap.url else ())]
    if _by_token(config, held):
        return None
    if any(api.highest(roles) is Role.ADMIN for roles in held):
        return None
    text = (
        "nobody is left who may administer this gateway: no user has the role"
        f" {api.administrators()}, and [security-settings] is written. Give it to one:"
        " `sluicegate user add NAME --role ROLE`, or `sluicegate user roles NAME --add ROLE`"
    )
    return Problem(where=config.origins.get(_KEY, ""), path=_KEY, text=text)
