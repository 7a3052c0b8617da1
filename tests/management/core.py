"""The real core over a store of lists, with the API on it; a test says when all is durable."""

from __future__ import annotations

import json
from itertools import count
from types import SimpleNamespace
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.addresses.match import SettingsEntry, SettingsTable
from gateway.addresses.settings import FullPolicy
from gateway.broker import Gateway, Limits
from gateway.management.api import add_routes
from gateway.management.http import Request, error_response
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.address import Destination, RoutingType
from gateway.model.message import DURABLE, STOMP
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.model.turn import Turn
from tests.broker.core import DiskStore, Owner, Taker


class Live:
    def __init__(self, live):
        self.live = live
        self.used = dict.fromkeys(live, 50)
        self.used_bytes, self.live_bytes = 100, 40


class Journal:
    """The journal's figures, all different."""

    batches, stored, cancelled, bytes_written, synced = 3, 5, 7, 11, 13
    bytes_cancelled = 17
    tasks, syncs, stalled = 31, 37, 4.1
    compaction = SimpleNamespace(
        copied=19, copied_bytes=23, emptied=29, recalled=31, lacking=0, failure=None
    )
    index = Live({1: 0, 2: 4})
    congested = True
    failure = None
    segment = 2


class Core:
    """A gateway with its API, driven turn by turn."""

    def __init__(
        self, *entries: SettingsEntry, limits: Limits | None = None, store=None, **sources
    ) -> None:
        self.later = []
        self.now = 1_000_000
        self.store = DiskStore() if store is None else store
        names = count()
        self.gateway = Gateway(
            turn=Turn(self.later.append),
            settings=SettingsTable(entries),
            store=self.store,
            limits=limits or Limits(),
            now_ms=lambda: self.now,
            make_name=lambda: f"temp-{next(names)}",
        )
        self.not_ready = None
        self.sources = Sources(gateway=self.gateway, not_ready=lambda: self.not_ready, **sources)
        self.router = Router()
        add_routes(self.router, self.sources)

    def turn(self) -> None:
        """Run what waits for the end of the turn."""
        waiting, self.later[:] = list(self.later), []
        for action in waiting:
            action()

    def sync(self) -> None:
        """End the turn and make its batches durable; an empty one is never reported."""
        self.turn()
        for ticket in self.store.sync():
            self.gateway.durable_up_to(ticket)

    def start(self, method: str, path: str, body: object = None):
        """Ask; returns the Response or the Deferred of it."""
        path, _, query = path.partition("?")
        fields = dict(part.split("=", 1) for part in query.split("&") if part)
        raw = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if raw else {}
        request = Request(method=method, path=path, query=fields, headers=headers, body=raw)
        return self.router.dispatch(request)

    def ask(self, method: str, path: str, body: object = None):
        """Ask, let everything become durable, and return (status, decoded body)."""
        answer = self.start(method, path, body)
        if isinstance(answer, Deferred):
            results = []
            answer.addBoth(results.append)
            self.sync()
            assert results, f"{method} {path} has no answer though all is durable"
            (answer,) = results
            if isinstance(answer, Failure):
                answer = error_response(answer.value)
                assert answer is not None
        raw = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return answer.status, json.loads(raw) if raw else None

    def queue(self, name: str):
        """Return a queue as the API shows it."""
        status, shown = self.ask("GET", f"/api/v1/queues/{quote(name, safe='')}")
        assert status == 200, shown
        return shown

    def address(self, name: str):
        status, shown = self.ask("GET", f"/api/v1/addresses/{quote(name, safe='')}")
        assert status == 200, shown
        return shown

    def send(self, name: str, *bodies: bytes, flags: int = DURABLE | STOMP | 4, expires: int = 0):
        """Send STOMP messages; returns what the producer port said."""
        route = self.gateway.open_producer(Destination(name), None, Owner())
        forms = [pack(name, body, persistent=bool(flags & DURABLE)) for body in bodies]
        ticket = route.send(Run(forms, flags, expires)).ticket
        route.close()
        return ticket

    def take(self, name: str, room: int) -> Taker:
        """Attach a consumer and let the queue hand out."""
        taker = Taker(room)
        taker.hold = self.gateway.subscribe(Destination(name), RoutingType.ANYCAST, taker)
        self.turn()
        return taker


def limited(match: str, policy: FullPolicy, **values) -> SettingsEntry:
    """Return settings with limits for the addresses that `match` fits."""
    return SettingsEntry(
        match=match,
        values={"address_full_policy": policy, **values},
        origins={"address_full_policy": "sluicegate.toml:7"},
    )
