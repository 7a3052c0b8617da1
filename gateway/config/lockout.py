"""Whether anybody is left who may administer the gateway over its API. Pure.

Only where permissions are judged: else whoever is let in may do everything.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.config.errors import Problem
from gateway.config.tree import Config
from gateway.model.roles import Role

#: The roles of each user.
Roles = Collection[frozenset[str]]

_KEY = "api-roles.admin"


def permissions_judged(config: Config) -> bool:
    """Whether permissions are judged: as soon as one table `[security-settings]` is written."""
    return bool(config.security_settings)


def other_realms(config: Config) -> bool:
    """Whether users are known elsewhere than in the users file."""
    return bool(config.ldap.url or config.certificate_users or config.tokens)


def _by_token(config: Config, held: list[frozenset[str]]) -> bool:
    """Add the roles that tokens may give; True: an issuer's tokens may give any."""
    for issuer in config.tokens:
        if issuer.role_claims and not issuer.role_map:
            return True
        held += [frozenset(roles) for roles in issuer.role_map.values()]
    return False


def lockout_problem(
    config: Config, users: Roles, *, before: tuple[Config, Roles] | None = None
) -> Problem | None:
    """Return what is wrong when nobody may administer: no user, group or rule for certificates.

    Args:
        config: what is to hold.
        users: the roles of each user of the file.
        before: what holds now; where nobody may administer by that either, nothing is lost.
    """
    if not _locked_out(config, users) or (before is not None and _locked_out(*before)):
        return None
    text = (
        "nobody is left who may administer this gateway: no user has the role"
        f" {config.api_roles.roles().administrators()}, and [security-settings] is written. Give it"
        " to one first: `sluicegate user roles NAME --add ROLE`, or `sluicegate user add NAME"
        " --role ROLE`"
    )
    return Problem(where=config.origins.get(_KEY, ""), path=_KEY, text=text)


def _locked_out(config: Config, users: Roles) -> bool:
    if not permissions_judged(config):
        return False
    api = config.api_roles.roles()
    held = [*users, *(config.ldap.roles.values() if config.ldap.url else ())]
    held += [rule.roles for rule in config.certificate_users if rule.roles is not None]
    by_token = _by_token(config, held)
    return not by_token and not any(api.highest(roles) is Role.ADMIN for roles in held)
