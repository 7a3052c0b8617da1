"""The families of `/metrics` about what clients have open and may use, as numbers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

from gateway.model.objects import Kind, Objects
from gateway.model.quota import ROWS, Scope
from gateway.quotas.meters import Meters

#: Users whose traffic is told of one by one.
USERS_MAX: Final = 1_000
#: Name, kind, text, and for each sample its labels and its number.
Family: TypeAlias = tuple[str, str, str, list[tuple[dict[str, str], int]]]


def object_figures(objects: Objects, users_max: int) -> Iterator[Family]:
    """Yield what clients have had made, and have open; of so many users one by one."""
    there = [({"kind": kind.value}, objects.held(kind)) for kind in Kind]
    text = "Addresses and queues made on demand, consumers and links that are open"
    yield "client_objects", "gauge", text, there
    limits = [
        ({"kind": kind.value, "each": each}, by_kind[kind])
        for each, by_kind in (("gateway", objects.limits.gateway), ("user", objects.limits.user))
        for kind in Kind
    ]
    text = "How many of them there may be of all users, and of each; -1: no limit"
    yield "client_objects_limit", "gauge", text, limits
    held = [
        ({"user": user, "kind": kind.value}, count)
        for user, counts in islice(objects.users.items(), users_max)
        for kind, count in counts.items()
    ]
    text = "Those of each user; an empty name is all who proved no login"
    yield "user_objects", "gauge", text, held
    refused = [({"key": key}, count) for key, count in sorted(objects.refused.items())]
    text = "How often one of these limits was in the way"
    yield "client_objects_refused_total", "counter", text, refused


def quota_figures(meters: Meters) -> Iterator[Family]:
    """Yield what quotas hold back, and what passes of those users that have one."""
    times = [
        ({"scope": scope.value, "limit": ROWS[row].key}, count)
        for (scope, row), count in sorted(meters.counts.items(), key=lambda item: item[0][1])
    ]
    text = "How often a quota held somebody back, or refused a connection or a link"
    yield "quota_reached_total", "counter", text, times
    waiting = Counter(dict.fromkeys(Scope, 0))
    for meter in meters.meters.values():
        waiting[meter.scope] += sum(len(flow.waiting) for flow in meter.flows)
    text = "Senders and consumers that a quota holds back now"
    held = [({"scope": scope.value}, count) for scope, count in waiting.items()]
    yield "quota_waiting", "gauge", text, held
    users = [meter for meter in meters.meters.values() if meter.scope is Scope.USER]
    flows = [
        ({"user": meter.name, "direction": "in" if flow.inward else "out"}, flow)
        for meter in users[:USERS_MAX]
        for flow in meter.flows
    ]
    text = "Messages of users that have a quota, since something of theirs was last open"
    yield (
        "quota_user_messages_total",
        "counter",
        text,
        [(labels, flow.passed) for labels, flow in flows],
    )
    text = "Bytes of them"
    yield (
        "quota_user_bytes_total",
        "counter",
        text,
        [(labels, flow.passed_bytes) for labels, flow in flows],
    )
