"""What a change of each key reaches while the gateway runs: the one table. Pure.

    at once           what is there and what comes: addresses, queues, streams, connections
    new connections   those that are open keep what they were given
    new queues        it is a default of queues, and those that are there keep theirs
    restart           it is named, and the old value stays in force
    refused           of what exists it never changes, also not by a restart: the file is refused
    stays             it has gone from the file, and nothing that exists is deleted for that

A key that is missing here would need a restart; a test holds that none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.addresses import settings
from gateway.model import attributes
from gateway.model.rows import Reach, Row


def _all(reach: Reach, keys: str) -> dict[str, Reach]:
    return dict.fromkeys(keys.split(), reach)


_TOP: Final = {
    **_all(
        Reach.AT_ONCE,
        "global-max-size global-max-messages"
        " user-max-addresses user-max-queues user-max-consumers user-max-links"
        " global-max-addresses global-max-queues global-max-consumers global-max-links"
        " journal-compact-min-files journal-compact-percentage"
        " store-task-limit store-linger store-lag-limit durability sync-interval"
        " max-disk-usage min-disk-free disk-scan-period scrub-period scrub-rate"
        " address-queue-scan-period message-expiry-scan-period"
        " allow-insecure literal-match-markers id-cache-size",
    ),
    **_all(Reach.NEW_CONNECTIONS, "name transaction-timeout stomp-default-persistent"),
    # Where what is stored lies, and how the journal was set up around it.
    **_all(
        Reach.RESTART,
        "data-directory journal-directory paging-directory journal-file-size ballast-size"
        " concurrent-store-and-dispatch-queues concurrent-store-and-dispatch-topics"
        " persist-id-cache",
    ),
}

_ACCEPTOR: Final = {
    **_all(Reach.RESTART, "endpoint"),
    **_all(
        Reach.NEW_CONNECTIONS,
        "protocols allow-anonymous sasl-mechanisms amqp-credits amqp-low-credits"
        " amqp-use-modified-for-transient-delivery-errors amqp-duplicate-detection"
        " amqp-drain-on-transient-delivery-errors amqp-link-quiesce-timeout amqp-idle-timeout"
        " max-frame-size max-message-size heart-beat-to-connection-ttl-modifier"
        " connection-ttl connection-ttl-min connection-ttl-max"
        " stomp-disk-full stomp-consumer-window-size anycast-prefix multicast-prefix"
        " disable-stomp-server-header connections-allowed unauthenticated-connections-allowed"
        " max-unread-size unread-timeout unfinished-timeout unfinished-min-rate"
        " consumer-stuck-timeout",
    ),
}


def _of_rows(rows: Mapping[str, Row]) -> dict[str, Reach]:
    return {row.key: row.fact(Reach) or Reach.AT_ONCE for row in rows.values()}


#: Table of the file -> key -> what its change reaches.
REACH: Final[Mapping[str, Mapping[str, Reach]]] = {
    "": _TOP,
    "acceptors": _ACCEPTOR,
    "address-settings": _of_rows(settings.ROWS),
    "queues": {
        **_all(Reach.AT_ONCE, "ring-size max-consumers filter"),
        **_all(Reach.REFUSED, "name routing-type durable"),
        **_of_rows(attributes.ROWS),
    },
    # Types are added; one that has gone stays.
    "addresses": _all(Reach.AT_ONCE, "routing-type routing-types"),
    "diverts": _all(Reach.AT_ONCE, "address forwarding-address exclusive filter routing-type"),
    "wildcard-addresses": _all(Reach.AT_ONCE, "routing-enabled"),
    "management": {
        **_all(Reach.RESTART, "endpoint enabled"),
        **_all(Reach.AT_ONCE, "allowed-hosts connections-allowed"),
    },
    "metrics": _all(Reach.RESTART, "enabled"),
    "logging": _all(Reach.AT_ONCE, "format level"),
    # What the users file holds is read again, where it is.
    "authentication": _all(Reach.RESTART, "type path"),
    "streams": _all(Reach.REFUSED, "address"),
}

#: Table of named tables -> what it is that one more, and one less, reaches.
ADDED: Final[Mapping[str, Reach]] = {
    "acceptors": Reach.RESTART,
    "address-settings": Reach.AT_ONCE,
    "addresses": Reach.AT_ONCE,
    "queues": Reach.AT_ONCE,
    "diverts": Reach.AT_ONCE,
    "streams": Reach.AT_ONCE,
}
REMOVED: Final[Mapping[str, Reach]] = {
    "acceptors": Reach.RESTART,
    "address-settings": Reach.AT_ONCE,
    "addresses": Reach.STAYS,
    "queues": Reach.STAYS,
    # A divert of the configuration is stored nowhere: it works until the gateway stops.
    "diverts": Reach.RESTART,
    "streams": Reach.STAYS,
}


def reach_of(table: str, key: str) -> Reach:
    """Return what a change of a key reaches; `table` is "" for the keys above all tables."""
    return REACH[table].get(key, Reach.RESTART)
