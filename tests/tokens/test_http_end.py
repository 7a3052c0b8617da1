"""What a request came with ends while it is answered: the answer ends, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from gateway.management.http import Response, json_response
from gateway.management.router import Router
from gateway.model.principal import By, Principal
from gateway.model.roles import Need
from gateway.time.ends import Ends
from tests.management.harness import Peer, build_site, request_bytes


class Tokens:
    """An Authenticator that takes any token, until a date."""

    open = False

    def for_peer(self, address: str) -> Tokens:
        return self

    def check(self, user: str, secret: str, done: Callable[[Principal | None], None]) -> None:
        done(Principal("ann", by=By.TOKEN, until_ms=5_000, issuer="live"))


class World:
    def __init__(self) -> None:
        self.answer: Any = json_response(200, {})
        router = Router()
        router.add("GET", "/thing", lambda request: self.answer, need=Need.VIEW)
        self.site, self.clock = build_site(router, Tokens(), None)
        self.now = 1_000
        self.ends = Ends(lambda: self.now, self.clock.seconds, lambda action: action())
        self.site._api.ends = self.ends
        self.peer = Peer(self.site, self.clock)

    def ask(self) -> list[Any]:
        said = request_bytes("GET", "/thing", Authorization="Bearer eyJhbGciOiJ9.eyJ9.AA")
        return self.peer.send(said)

    def end(self) -> None:
        self.now = 5_000
        self.ends.look()


def test_an_answer_that_is_there_is_watched_no_longer() -> None:
    world = World()
    (reply,) = world.ask()
    assert (reply.status, len(world.ends)) == (200, 0)
    world.end()
    assert world.peer.ask("GET", "/nowhere", Authorization="Bearer x").status == 401


def test_who_waits_for_an_answer_is_told() -> None:
    world, ended = World(), []
    world.answer = Deferred()
    world.answer.addErrback(lambda failure: ended.append(failure.type) or failure)
    assert world.ask() == []
    world.end()
    (reply,) = world.peer.replies()
    assert (reply.status, b"token-expired" in reply.body) == (401, True)
    assert ended == [CancelledError]
    assert len(world.ends) == 0


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_in_pieces_is_cut(ends: bool) -> None:
    closed: list[bool] = []

    def pieces() -> Iterator[bytes]:
        try:
            yield b"x" * 1000
            world.peer.channel.pauseProducing()  # its client reads no more
            while True:
                yield b"x" * 1000
        finally:
            closed.append(True)

    world = World()
    world.answer = Response(status=200, body=pieces())
    world.peer.channel.dataReceived(
        request_bytes("GET", "/thing", Authorization="Bearer eyJhbGciOiJ9.eyJ9.AA")
    )
    world.clock.advance(0)
    assert (closed, world.peer.transport.disconnected) == ([], False)
    if ends:
        world.end()
        assert (closed, world.peer.transport.disconnected) == ([True], True)
    else:
        world.peer.leave()
        assert (closed, len(world.ends)) == ([True], 0)
