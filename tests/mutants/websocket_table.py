"""Bugs planted in WebSocket: found by seeds, by damaged frames, or by the tables of its tests.

A client of the simulation breaks no rule and is no page: seeds have nothing to say of what a wrong
frame is told, nor of origins. For these stand damaged frames, and the tables as one seed each.
"""

from __future__ import annotations

from protocols.websocket.limits import WebSocketLimits
from tests.mutants.plant import Mutant
from tests.protocols.websocket import fuzz
from tests.protocols.websocket.inner import Built, Echo
from tests.protocols.websocket.reference import check_said
from tests.protocols.websocket.test_autobahn import CASES, MIB, by_frames, judge, say
from tests.protocols.websocket.test_handshake import ORIGINS, REFUSED, ask, request
from tests.protocols.websocket.test_session import TestEnds, TestPressure
from tests.simulation.wire.world import run_websocket_seed


def _requests() -> None:
    for data, status, _ in REFUSED.values():
        assert ask(data)[0] == status


def _origins() -> None:
    for origin, host, facts, limits, let_in in ORIGINS:
        made = WebSocketLimits(**limits)  # type: ignore[arg-type]
        built = Built(limits=made, facts=facts)
        assert ask(request(Origin=origin, Host=host), built)[0] == (101 if let_in else 403), origin


def _cases() -> None:
    for case in CASES:
        built = Built(limits=WebSocketLimits(message_bytes_max=MIB), kind=Echo)
        judge(case, check_said(say(built, by_frames(case, case.stream), hurried=False)), built)


def _inside() -> None:
    TestPressure().test_reading_pauses_and_waits_as_what_is_inside_does()
    TestEnds().test_what_is_inside_ends_with_its_last_bytes_a_close_and_the_socket()
    TestPressure().test_what_was_set_before_is_there_from_the_beginning()


TABLES = (_requests, _origins, _cases, _inside)


def run_table(number: int) -> None:
    """Run one of the tables; there is nothing behind the last one."""
    if number < len(TABLES):
        TABLES[number]()


def _seeds(name: str, target: str, old: str, new: str, first: int = 0) -> Mutant:
    return Mutant(f"WebSocket: {name}", target, old, new, run_websocket_seed, first)


def _fuzz(name: str, target: str, old: str, new: str) -> Mutant:
    return Mutant(f"WebSocket: {name}", target, old, new, fuzz.execute, 1)


def _table(name: str, target: str, old: str, new: str) -> Mutant:
    return Mutant(f"WebSocket: {name}", target, old, new, run_table)


_TUNNEL = "protocols.websocket.tunnel:Tunnel."
_FRAMES = "protocols.websocket.frames:Frames."
_SESSION = "protocols.websocket.session:WebSocketSession."
_PLAIN = "protocols.websocket.plain:"
_HANDSHAKE = "protocols.websocket.handshake:"

WEBSOCKET_MUTANTS = (
    _seeds(
        "a Pong is no sign of life",
        _TUNNEL + "_hear",
        "if self.inner is not None:",
        "if self.inner is not None and payload:",
    ),
    _seeds(
        "who is silent is not asked",
        _TUNNEL + "_ask",
        "if self._write_room:",
        "if False:",
    ),
    _seeds(
        "a Ping is not answered",
        _TUNNEL + "_take_out",
        "if self._frames.ping is not None:",
        "if False:",
    ),
    _seeds(
        "what came behind the end of a turn is lost",
        _TUNNEL + "behind",
        "return self._frames.behind or (",
        "return False or (",
    ),
    _seeds(
        "the first bytes are lost when the next ones tell the protocol",
        _TUNNEL + "_look_inside",
        "return first",
        "return payload",
    ),
    _seeds(
        "what is inside is not told of the end",
        _TUNNEL + "connection_lost",
        "        self.inner.connection_lost(now)\n",
        "        pass\n",
    ),
    _seeds(
        "who reads again is not told so inside",
        _TUNNEL + "write_resumed",
        "        self.inner.write_resumed()\n",
        "        pass\n",
        200,
    ),
    _seeds(
        "our Close is waited for without an end",
        _TUNNEL + "_say_close",
        "    self._retick = True",
        "    self._retick = False",
    ),
    _seeds(
        "frames of STOMP share a message",
        "protocols.stomp.outbox:Outbox.apart",
        "if len(sizes) < 2:",
        "if True:",
    ),
    _seeds(
        "a frame of STOMP ends where another one does",
        "protocols.stomp.message_frames:MessageFrames._piece",
        "more += len(fresh)",
        "more += len(seen)",
    ),
    _seeds(
        "bytes go out as text",
        _PLAIN + "is_utf8",
        "        return False\n",
        "        return True\n",
    ),
    _seeds(
        "a message counts to the next one",
        _FRAMES + "_count",
        "self._message_bytes = self._frames = 0",
        "self._frames = 0",
    ),
    _seeds(
        "frames in the read of the request are lost",
        _SESSION + "_accept",
        "if rest:",
        "if False:",
    ),
    _seeds(
        "what the client did not offer is chosen",
        _HANDSHAKE + "_judge",
        "if one in offered and _of(one) in spoken",
        "if _of(one) in spoken",
    ),
    _fuzz(
        "each frame has the limit of a message",
        _FRAMES + "_count",
        "self._message_bytes += len(data)",
        "self._message_bytes = len(data)",
    ),
    _fuzz(
        "bytes are text to those that may not have text",
        _FRAMES + "_count",
        "if text and self.binary_only:",
        "if False:",
    ),
    _fuzz(
        "what was said last is lost when the peer says Close",
        _TUNNEL + "_answer_close",
        "    self._take_out()\n",
        "",
    ),
    _fuzz(
        "what a wrong frame follows is lost",
        _TUNNEL + "_hear",
        "        self._take_out()\n",
        "",
    ),
    _table(
        "the peer's Close after ours counts for nothing",
        _TUNNEL + "_hear_close",
        "if self._frames.closed is not None:",
        "if False:",
    ),
    _fuzz(
        "a whole frame has no limit",
        _PLAIN + "read_plain",
        "if stop > end or length > most:",
        "if stop > end:",
    ),
    _fuzz(
        "text of a whole frame may be anything",
        _PLAIN + "read_plain",
        "            payload.decode()\n",
        "            pass\n",
    ),
    _fuzz(
        "each part of a message is unmasked from the key's begin",
        "protocols.websocket.masking:turned",
        "key[rest:] + key[:rest]",
        "key",
    ),
    _table(
        "Close is not answered",
        _TUNNEL + "_answer_close",
        '    self._out.append(self._frames.close(Closing(said.code, "")))\n',
        "",
    ),
    _table(
        "Close is answered with a code of our own",
        _TUNNEL + "_answer_close",
        "Closing(said.code",
        "Closing(1000",
    ),
    _table(
        "what was delivered stays away after Close until the socket goes",
        _TUNNEL + "_answer_close",
        "    self.connection_lost(now)\n",
        "",
    ),
    _table(
        "frames of a message are not counted",
        _FRAMES + "_count",
        "self._frames += 1",
        "self._frames += 0",
    ),
    _table(
        "a pause inside is not passed on",
        _TUNNEL + "paused_reading",
        "return not self.seen.known or self._held >= HELD_BYTES_MAX",
        "return False",
    ),
    _table(
        "a peer that does not read is news to what is inside",
        _TUNNEL + "_look_inside",
        "found.write_room, found.choked = self._write_room, self._choked",
        "found.write_room, found.choked = True, False",
    ),
    _table(
        "an origin need only begin like one of the list",
        "protocols.websocket.origins:may_connect",
        "any(read_origin(one) == page for one in limits.origins)",
        "origins[0].startswith(tuple(limits.origins) or ' ')",
    ),
    _table(
        "an origin that is none is let in",
        "protocols.websocket.origins:may_connect",
        "    if page is None:\n        return False\n",
        "    if page is None:\n        return True\n",
    ),
    _table(
        "a page without TLS is of the same origin",
        "protocols.websocket.origins:may_connect",
        'or (tls and page.scheme != "https")',
        "",
    ),
    _table(
        "a name is of the same origin where nobody has to log in",
        "protocols.websocket.origins:may_connect",
        "not limits.open_to_all or _is_address(page.host)",
        "True",
    ),
    _table(
        "a key may be anything in base64",
        _HANDSHAKE + "_is_key",
        "== _KEY_BYTES",
        "> 0",
    ),
    _table(
        "a head may be as large as it likes",
        "protocols.websocket.requests:Head.receive",
        "part, self.rest = data[:room], data[room:]",
        'part, self.rest = data, b""',
    ),
    _table(
        "a body behind the request is taken for frames",
        _HANDSHAKE + "_wrong_method",
        'request.values("transfer-encoding") or',
        "",
    ),
)
