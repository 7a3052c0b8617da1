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
from enum import Enum
from typing import Final


class Reach(Enum):
    """See the module text."""

    AT_ONCE = "at-once"
    NEW_CONNECTIONS = "new-connections"
    NEW_QUEUES = "new-queues"
    RESTART = "restart"
    REFUSED = "refused"
    STAYS = "stays"

    @property
    def applies(self) -> bool:
        """Whether a reload does something for it."""
        return self in (Reach.AT_ONCE, Reach.NEW_CONNECTIONS, Reach.NEW_QUEUES)


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

_ADDRESS_SETTINGS: Final = {
    **_all(
        Reach.AT_ONCE,
        "dead-letter-address expiry-address auto-create-dead-letter-resources"
        " dead-letter-queue-prefix dead-letter-queue-suffix auto-create-expiry-resources"
        " expiry-queue-prefix expiry-queue-suffix max-delivery-attempts redelivery-delay"
        " redelivery-delay-multiplier redelivery-collision-avoidance-factor max-redelivery-delay"
        " max-size-bytes max-size-messages max-size-bytes-reject-threshold address-full-policy"
        " disk-full-policy page-size-bytes page-limit-bytes page-limit-messages page-full-policy"
        " max-read-page-bytes max-read-page-messages prefetch-page-bytes prefetch-page-messages"
        " auto-create-queues auto-create-addresses default-address-routing-type"
        " ring-victim auto-delete-queues auto-delete-created-queues auto-delete-queues-delay"
        " auto-delete-queues-message-count auto-delete-queues-skip-usage-check"
        " auto-delete-addresses auto-delete-addresses-delay"
        " auto-delete-addresses-skip-usage-check expiry-delay min-expiry-delay max-expiry-delay"
        " no-expiry slow-consumer-threshold slow-consumer-threshold-measurement-unit"
        " slow-consumer-policy slow-consumer-check-period send-to-dla-on-no-route enable-metrics"
        " management-browse-page-size management-message-attribute-size-limit reject-as-modified"
        " id-cache-size retroactive-message-count strict-dispatch durability",
    ),
    # A sender takes the way that stamps its messages, or the other one, when it attaches.
    **_all(Reach.NEW_CONNECTIONS, "enable-ingress-timestamp"),
    **_all(
        Reach.NEW_QUEUES,
        "default-queue-routing-type default-ring-size default-max-consumers"
        " default-exclusive-queue default-purge-on-no-consumers default-consumers-before-dispatch"
        " default-delay-before-dispatch default-last-value-queue default-last-value-key"
        " default-non-destructive default-group-buckets default-group-rebalance"
        " default-group-rebalance-pause-dispatch default-group-first-key",
    ),
}

_QUEUE: Final = {
    **_all(
        Reach.AT_ONCE,
        "ring-size max-consumers filter exclusive purge-on-no-consumers consumers-before-dispatch"
        " delay-before-dispatch enabled group-buckets group-rebalance"
        " group-rebalance-pause-dispatch group-first-key consumer-priority auto-delete"
        " auto-delete-delay auto-delete-message-count",
    ),
    **_all(Reach.REFUSED, "name routing-type durable last-value last-value-key non-destructive"),
}

#: Table of the file -> key -> what its change reaches.
REACH: Final[Mapping[str, Mapping[str, Reach]]] = {
    "": _TOP,
    "acceptors": _ACCEPTOR,
    "address-settings": _ADDRESS_SETTINGS,
    "queues": _QUEUE,
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
