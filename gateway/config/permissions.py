"""`[security-settings]`: from raw tables to permissions by match. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.addresses.match import literal
from gateway.addresses.permissions import (
    PermissionEntry,
    PermissionTable,
    permission_match_problem,
)
from gateway.config import schema
from gateway.config.errors import Path
from gateway.config.walk import Walk
from gateway.model.principal import Permission


def read_permissions(walk: Walk, raw: object, markers: str) -> PermissionTable:
    """Return the tables `[security-settings."MATCH"]`; what is wrong with them the walk keeps."""
    entries = []
    for match, table in walk.tables(raw, ("security-settings",)):
        path: Path = ("security-settings", match)
        problem = permission_match_problem(match) if literal(match, markers) is None else None
        if problem is not None:
            walk.wrong(path, problem)
        read = walk.table(table, path, schema.SECURITY_SETTINGS)
        roles: dict[Permission, frozenset[str]] = {}
        origins: dict[Permission, str] = {}
        for key in table if isinstance(table, Mapping) else ():
            permission = schema.PERMISSIONS.get(key)
            if permission in roles:
                walk.wrong((*path, key), f"is {permission.value} in Artemis' words; keep one")
            elif permission is not None and (written := key.replace("-", "_")) in read:
                roles[permission] = read[written]
                origins[permission] = walk.layers.origin((*path, key))
        origin = walk.layers.origin(path)
        entries.append(PermissionEntry(match=match, roles=roles, origins=origins, origin=origin))
    return PermissionTable(entries, markers=markers)
