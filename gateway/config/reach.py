"""What a change of each key reaches while the gateway runs, as the rows of the keys say. Pure.

    at once           what is there and what comes: addresses, queues, streams, connections
    new connections   those that are open keep what they were given
    new queues        it is a default of queues, and those that are there keep theirs
    restart           it is named, and the old value stays in force
    refused           of what exists it never changes, also not by a restart: the file is refused
    stays             it has gone from the file, and nothing that exists is deleted for that

A key whose row does not say needs a restart, and so would one that is missing; a test holds that
none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.addresses import settings
from gateway.config import access, audit, streams, tokens, tree
from gateway.model import attributes, quota
from gateway.model.principal import Permission
from gateway.model.rows import Reach, Row, rows_of


def _all(reach: Reach, keys: str) -> dict[str, Reach]:
    return dict.fromkeys(keys.split(), reach)


def _of_rows(rows: Mapping[str, Row], unsaid: Reach = Reach.RESTART) -> dict[str, Reach]:
    return {row.key: row.fact(Reach) or unsaid for row in rows.values()}


#: Table of the file -> key -> what its change reaches.
REACH: Final[Mapping[str, Mapping[str, Reach]]] = {
    "": _of_rows(rows_of(tree.Config)),
    "acceptors": _of_rows(rows_of(tree.Acceptor)),
    "address-settings": _of_rows(settings.ROWS, Reach.AT_ONCE),
    "security-settings": _all(Reach.AT_ONCE, " ".join(one.value for one in Permission)),
    "queues": {
        **_of_rows(rows_of(tree.QueueConfig)),
        **_of_rows(attributes.ROWS, Reach.AT_ONCE),
    },
    # Types are added; one that has gone stays.
    "addresses": _all(Reach.AT_ONCE, "routing-type routing-types"),
    "diverts": _all(Reach.AT_ONCE, "address forwarding-address exclusive filter routing-type"),
    "wildcard-addresses": _all(Reach.AT_ONCE, "routing-enabled"),
    "management": _of_rows(rows_of(tree.ManagementConfig)),
    "api-roles": _of_rows(rows_of(access.ApiRolesConfig)),
    "ldap": _of_rows(rows_of(access.LdapConfig)),
    "metrics": _of_rows(rows_of(tree.MetricsConfig)),
    "logging": _of_rows(rows_of(tree.LoggingConfig)),
    "sink": _of_rows(rows_of(tree.SinkConfig)),
    "archive": _of_rows(rows_of(streams.ArchiveConfig)),
    "audit": _of_rows(rows_of(audit.AuditConfig)),
    # What the users file holds is read again, where it is.
    "authentication": _all(Reach.RESTART, "type path"),
    "streams": _of_rows(rows_of(streams.StreamConfig)),
    "tokens": _of_rows(rows_of(tokens.IssuerConfig)),
    # Compared as a whole, since the first rule that fits counts.
    "certificate-users": _all(
        Reach.AT_ONCE,
        "user roles subject subject-matches issuer dns dns-matches uri uri-matches email"
        " email-matches",
    ),
    "quotas": _of_rows(quota.ROWS),
}

#: Table of named tables -> what it is that one more, and one less, reaches.
ADDED: Final[Mapping[str, Reach]] = {
    "acceptors": Reach.RESTART,
    "address-settings": Reach.AT_ONCE,
    "security-settings": Reach.AT_ONCE,
    "addresses": Reach.AT_ONCE,
    "queues": Reach.AT_ONCE,
    "diverts": Reach.AT_ONCE,
    "streams": Reach.AT_ONCE,
    "tokens": Reach.AT_ONCE,
    "quotas": Reach.AT_ONCE,
}
REMOVED: Final[Mapping[str, Reach]] = {
    "acceptors": Reach.RESTART,
    "address-settings": Reach.AT_ONCE,
    "security-settings": Reach.AT_ONCE,
    "addresses": Reach.STAYS,
    "queues": Reach.STAYS,
    # A divert of the configuration is stored nowhere: it works until the gateway stops.
    "diverts": Reach.RESTART,
    "streams": Reach.STAYS,
    # What its tokens let in ends with it.
    "tokens": Reach.AT_ONCE,
    "quotas": Reach.AT_ONCE,
}


def reach_of(table: str, key: str) -> Reach:
    """Return what a change of a key reaches; `table` is "" for the keys above all tables."""
    return REACH[table].get(key, Reach.RESTART)
