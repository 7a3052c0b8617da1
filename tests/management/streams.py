"""The API of streams over a registry whose disk is in memory, and what tests ask of it."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from gateway.management.http import Request, Response, error_response
from gateway.management.router import Router
from gateway.management.streams_api import StreamsApi
from tests.storage.power import PowerFiles
from tests.streams.harness import fill, make_registry, stomp_message

BASE = "/api/v1/streams"
SUBSCRIPTION = f"{BASE}/subscriptions"


class StreamsCase(SynchronousTestCase):
    """A registry of streams with their API on it."""

    def setUp(self) -> None:
        self.files = PowerFiles()
        self.open()

    def open(self, **options: Any) -> None:
        self.registry, self.owner, self.now = make_registry("root", fs=self.files, **options)
        self.clock = Clock()
        self.router = Router()
        StreamsApi(self.clock, self.registry).install(self.router)

    def start(self, method: str, path: str, body: Any = None) -> Deferred[Response]:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        return self.answered(Request(method=method, path=path, headers=headers, body=data))

    def answered(self, request: Request) -> Deferred[Response]:
        answer = self.router.dispatch(request)
        if isinstance(answer, Response):
            done: Deferred[Response] = Deferred()
            done.callback(answer)
            return done
        return answer.addErrback(lambda failure: error_response(failure.value) or failure)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = self.successResultOf(self.start(method, path, body))
        return response.status, json.loads(response.body) if response.body else None

    def good(self, method: str, path: str, body: Any = None) -> Any:
        status, value = self.ask(method, path, body)
        assert status < 300, (status, value)
        return value

    def fill(self, count: int, stream: str = "orders", size: int = 1) -> None:
        fill(self.registry, stream, [stomp_message(b"x" * size)] * count)

    def attach(self, name: str = "etl", **fields: Any) -> Any:
        body = {"address": "orders", "startingOffsets": "earliest"} | fields
        return self.good("POST", f"{SUBSCRIPTION}/{name}:attach", body)

    def plan(self, **fields: Any) -> Any:
        return self.good("POST", f"{SUBSCRIPTION}/etl:plan", fields)
