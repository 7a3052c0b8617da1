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
    return bool(config.ldap.url or config.certificate_users)


def lockout_problem(config: Config, users: Iterable[frozenset[str]]) -> Problem | None:
    """Return what is wrong when nobody may administer: no user, group or rule for certificates.

    `users` are the roles of each user of the file.
    """
    if not permissions_judged(config):
        return None
    api = config.api_roles.roles()
    held = [*users, *(config.ldap.roles.values() if config.ldap.url else ())]
    held += [rule.roles for rule in config.certificate_users if rule.roles is not None]
    if any(api.highest(roles) is Role.ADMIN for roles in held):
        return None
    text = (
        "nobody is left who may administer this gateway: no user has the role"
        f" {api.administrators()}, and [security-settings] is written. Give it to one:"
        " `sluicegate user add NAME --role ROLE`, or `sluicegate user roles NAME --add ROLE`"
    )
    return Problem(where=config.origins.get(_KEY, ""), path=_KEY, text=text)
