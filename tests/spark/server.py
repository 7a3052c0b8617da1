"""A gateway's streams behind the real management listener, as a process that a test can kill.

    python -m tests.spark.server DIRECTORY PORT [FACTS]

FACTS is JSON: `name` of the gateway, `segmentBytes` of a file of the log, `localBytes` and
`retentionBytes` as the configuration has them. Prints `ready PORT`. Beside the streams' calls it
has `POST /test/fill` `{"stream", "count", "kind"}`, which answers when the messages are in the log,
`POST /test/faults`
`{"cutEvery"}`: answers of `read` break off after that many bytes, and `GET /test/commits`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import structlog
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread

from gateway.management.http import Request, Response, json_response
from gateway.management.router import Router
from gateway.management.streams_api import StreamsApi
from gateway.management.wire import ApiSite, WireSettings
from gateway.model.message import STOMP
from gateway.model.principal import Principal
from gateway.model.roles import Need
from gateway.streams.registry import StreamRegistry
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from storage.arrow_log import SEGMENT_BYTES
from storage.files import RealFiles
from storage.stream_files import StreamFiles
from tests.streams.harness import Owner, amqp_message, fill, stomp_message


class Threads:
    """The worker threads."""

    def run(self, function: Any, *args: Any) -> Deferred[Any]:
        return deferToThread(function, *args)


class OpenGate:
    """No user is configured."""

    open = True

    def anybody(self, user: str | None) -> Principal:
        return Principal(user)

    def check(self, user: str, password: str, done: Any) -> None:
        done(Principal(user))


class Faults:
    """Cuts answers of `read`, as a network does."""

    def __init__(self) -> None:
        self.cut_every = 0
        self.calls: list[str] = []

    def watch(self, api: StreamsApi) -> None:
        real = api.read

        def read(request: Request) -> Deferred[Response]:
            return real(request).addCallback(self._cut)

        api.read = read  # type: ignore[method-assign]
        lift = api.commit

        def commit(request: Request, name: str) -> Deferred[Response]:
            self.calls.append(f"{request.path.rpartition(':')[2]} {request.body.decode()}")
            return lift(request, name)

        api.commit = commit  # type: ignore[method-assign]

    def _cut(self, response: Response) -> Response:
        if self.cut_every and not isinstance(response.body, bytes):
            body = b"".join(response.body)
            return Response(status=200, body=self._broken(body), content_type=response.content_type)
        return response

    def _broken(self, body: bytes) -> Iterator[bytes]:
        if len(body) <= self.cut_every:
            yield body
            return
        yield body[: self.cut_every]
        raise ConnectionError("cut by the test")


def make_bodies(kind: str, start: int, count: int) -> tuple[list[bytes], int]:
    """Return stored messages whose body is their number as text."""
    if kind == "amqp":
        return [amqp_message(b"%d" % i, app={"n": i}) for i in range(start, start + count)], 0x14
    return [stomp_message(b"%d" % i, n=str(i)) for i in range(start, start + count)], STOMP | 4


def main(directory: str, port: int, facts: dict[str, Any]) -> None:
    """Serve until killed."""
    now = lambda: int(time.time() * 1000)  # noqa: E731
    limits = Limits(
        bytes_max=facts.get("retentionBytes", 5 << 30), local_bytes=facts.get("localBytes", 0)
    )
    settings = StreamSettings(retention=limits, seal_after_ms=500)
    segment_bytes = facts.get("segmentBytes", SEGMENT_BYTES)
    store = StreamFiles(RealFiles(), directory, segment_bytes=segment_bytes)
    registry = StreamRegistry(store, Threads(), Owner(), settings, now)
    registry.load(lambda: str(uuid.uuid4()))
    registry.recover({})
    router, faults = Router(), Faults()
    api = StreamsApi(reactor, registry, facts.get("name", "gateway"))
    faults.watch(api)
    api.install(router)

    def on_fill(request: Request) -> Deferred[Response]:
        fields = msgspec.json.decode(request.body)
        tap = registry.get(fields["stream"])
        start = tap.stream.next_offset
        bodies, flags = make_bodies(fields["kind"], start, fields["count"])
        for at in range(0, len(bodies), 500):
            fill(registry, fields["stream"], bodies[at : at + 500], flags)
        return registry.flush().addCallback(lambda _: json_response(200, {}))

    def on_faults(request: Request) -> Response:
        faults.cut_every = msgspec.json.decode(request.body)["cutEvery"]
        return json_response(200, {})

    router.add("POST", "/test/fill", on_fill, need=Need.VIEW)
    router.add("POST", "/test/faults", on_faults, need=Need.VIEW)
    router.add("GET", "/test/commits", lambda _: json_response(200, faults.calls), need=Need.VIEW)
    LoopingCall(registry.tick).start(0.2, now=False)
    site = ApiSite(reactor, router, lambda _: OpenGate(), WireSettings())
    listening = reactor.listenTCP(port, site, interface="127.0.0.1")
    print("ready", listening.getHost().port, flush=True)
    reactor.run()


if __name__ == "__main__":
    # Nobody reads the pipe behind `ready`: logs in it would stop the server when it is full.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if sys.argv[3:] else {})
