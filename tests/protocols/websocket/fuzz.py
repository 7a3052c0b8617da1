"""`python -m tests.protocols.websocket.fuzz`: damaged handshakes and frames, as many as one likes.

    --executions N   how many (a million)          --seed N    which ones begin (0)
    --seconds N      stop after that time          --jobs N    processes (1)

An execution is one connection: a valid conversation with one to three accidents, said in pieces to
a session of its own, from the request to the end. Judged are what the gateway says (HTTP, then
frames, nothing behind Close), what it passes on (what `reference` reads in the same bytes), the
code it says, that it ends, and, of each so-manieth, what it holds. A failure names its number:
`--seed` begins there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus

from gateway.model.peers import Cause, Ending
from protocols.transport.speaking import PeerFacts, Session, Speaker
from protocols.websocket.limits import (
    FIRST_BYTES_SECONDS,
    FRAMES_MAX,
    HEAD_BYTES_MAX,
    WebSocketLimits,
)
from protocols.websocket.session import WebSocketSession
from tests.protocols.websocket.client import frame, request
from tests.protocols.websocket.inner import FACTS, Echo, Inner
from tests.protocols.websocket.reference import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NO_TEXT,
    PING,
    PONG,
    TEXT,
    TOO_BIG,
    UNSUPPORTED,
    Come,
    check_said,
    read,
)

#: Small, so that accidents reach it.
BYTES_MAX = 500
LIMITS = WebSocketLimits(message_bytes_max=BYTES_MAX, origins=frozenset(["https://shop.example"]))
#: Each so-manieth execution is asked what it holds.
WEIGHED = 97
#: What a connection may hold between two reads: a head, then a frame's first bytes or a control
#: frame, and the names that its state is made of.
HELD_MAX = HEAD_BYTES_MAX + 4_096
_BASES = 60
_BEGAN = 100.0
_DONE_SECONDS = 3.0


class Line:
    """A session of its own, and all that it says."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.inner: Echo | None = None
        speakers = {
            name: Speaker(guess=name, build=self._build)  # type: ignore[arg-type]
            for name in ("AMQP", "STOMP")
        }
        self.session: WebSocketSession = WebSocketSession(speakers, LIMITS, FACTS)
        if chance.random() < 0.2:
            self.session.spent = lambda: chance.random() < 0.5
        self.out = bytearray()
        self.now = _BEGAN

    def _build(self, facts: PeerFacts) -> Session:
        assert self.inner is None, "two are inside"
        self.inner = Echo()
        return self.inner

    def say(self, data: bytes) -> None:
        """Do as the shell does with what came."""
        session = self.session
        if session.closing:
            return
        session.receive_data(data, self.now)
        self.out += session.data_to_send()
        while session.behind and not session.closing:
            session.go_on(self.now)
            self.out += session.data_to_send()

    def pressed(self) -> None:
        """Now and then the peer does not read, time goes by, or what is inside has no room."""
        session = self.session
        match int(self._chance.random() * 4):
            case 0:
                session.write_room = False
                session.choked = True
            case 1:
                session.write_room = True
                session.write_resumed()
            case 2:
                self.now += 6.0
                session.tick(self.now)
                self.out += session.data_to_send()
            case _ if self.inner is not None:
                self.inner.paused_reading = not self.inner.paused_reading

    def end(self) -> None:
        """Lose the connection; nothing may come of what is said to it then."""
        session = self.session
        session.connection_lost(self.now)
        assert session.data_to_send() == b"", "something is said behind the end"
        assert session.seen.ending is not None or self.inner is not None
        if self.inner is not None:
            assert self.inner.lost, "what is inside was not told of the end"


# ---- conversations


def _said(chance: random.Random) -> list[bytes]:
    """Return the frames of a valid conversation."""
    frames = []
    texts = chance.random() < 0.5
    for _ in range(chance.randint(1, 6)):
        text = texts and chance.random() < 0.8
        body = "é€𝄞x" * chance.choice([1, 5, 40]) if text else ""
        data = body.encode() if text else chance.randbytes(chance.choice([0, 3, 125, 126, 400]))
        count = chance.choice([1, 1, 2, 4])
        opcode = TEXT if text else BINARY
        for number in range(count):
            part = data[number * len(data) // count : (number + 1) * len(data) // count]
            mask = chance.randbytes(4)
            frames.append(frame(opcode, part, fin=number == count - 1, mask=mask))
            opcode = CONTINUATION
            if chance.random() < 0.3:
                control = chance.choice([PING, PONG])
                frames.append(frame(control, chance.randbytes(chance.choice([0, 4, 125]))))
    if chance.random() < 0.5:
        code = chance.choice([1000, 1001, 1011, 3000, 4999])
        frames.append(frame(CLOSE, code.to_bytes(2, "big") + "so long é".encode()))
    return frames


@cache
def bases() -> list[list[bytes]]:
    """Return the conversations that are damaged, made once."""
    chance = random.Random("websocket conversations")
    return [_said(chance) for _ in range(_BASES)]


@cache
def requests() -> list[bytes]:
    """Return the requests: the last one is the plainest, for whom frames are what is damaged."""
    return [
        request("/stomp?x=y", Sec_WebSocket_Protocol="v11.stomp, v12.stomp", Cookie="a" * 400),
        request("/", Origin="https://shop.example", Sec_WebSocket_Protocol="amqp"),
        request("/amqp", Origin="http://localhost:3000", Sec_WebSocket_Extensions="x; a=b"),
        request("/$servicebus/websocket", Sec_WebSocket_Protocol="AMQPWSB10"),
        request(Sec_WebSocket_Protocol="v12.stomp"),
    ]


EXTREMES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x7e",
    b"\xfe",
    b"\x81",
    b"\x88",
    b"\x89",
    b"\r\n",
)


def damage(chance: random.Random, data: bytearray) -> None:
    """Change, cut, add or copy some bytes."""
    draw = chance.random
    at = int(draw() * len(data))
    match int(draw() * 6):
        case 0:
            data[at] ^= 1 << int(draw() * 8)
        case 1:
            data[at : at + 1] = EXTREMES[int(draw() * len(EXTREMES))]
        case 2:
            del data[at : at + 1 + int(draw() * 8)]
        case 3:
            data[at:at] = chance.randbytes(1 + int(draw() * 8))
        case 4:
            data[at : at + 4] = EXTREMES[int(draw() * 4)] * 4
        case _:
            other = int(draw() * len(data))
            data[at:at] = data[other : other + 1 + int(draw() * 40)]
    if not data:
        data += b"\x81"


def _accident(chance: random.Random, frames: list[bytes]) -> None:
    """Do something to the frames, or to one of them; most often to its first bytes."""
    draw = chance.random
    one = int(draw() * len(frames))
    match int(draw() * 10):
        case 0:
            other = int(draw() * len(frames))
            frames[one], frames[other] = frames[other], frames[one]
        case 1:
            frames.insert(one, frames[int(draw() * len(frames))])
        case 2 if len(frames) > 1:
            del frames[one]
        case 3:
            frames[one:one] = [frames[int(draw() * len(frames))]] * int(draw() * 8)
        case 4:
            whole = bytearray(frames[one])
            damage(chance, whole)
            frames[one] = bytes(whole)
        case 5:
            whole = bytearray(frames[one])
            whole[min(1, len(whole) - 1)] ^= 1 << int(draw() * 8)
            frames[one] = bytes(whole)
        case 6:
            large = frame(int(draw() * 3), bytes(BYTES_MAX + int(draw() * 2)), fin=draw() < 0.5)
            frames.insert(one, large)
        case 7:
            whole = bytearray(frames[one])
            whole[-1] ^= 0x80
            frames[one] = bytes(whole)
        case _:
            whole = bytearray(frames[one])
            whole[0] ^= 1 << int(draw() * 8)
            frames[one] = bytes(whole)


def damaged_frames(chance: random.Random) -> bytes:
    """Return a conversation after some accidents."""
    known = bases()
    frames = list(known[int(chance.random() * len(known))])
    for _ in range(1 + int(chance.random() * 3)):
        _accident(chance, frames)
    return b"".join(frames)


def damaged_request(chance: random.Random) -> bytes:
    """Return a request after some accidents, and a few frames behind it."""
    known = requests()
    data = bytearray(known[int(chance.random() * len(known))])
    if chance.random() < 0.3:
        lines = bytes(data).split(b"\r\n")
        at = int(chance.random() * len(lines))
        lines[at:at] = [lines[int(chance.random() * len(lines))]] * int(chance.random() * 120)
        data = bytearray(b"\r\n".join(lines))
    for _ in range(int(chance.random() * 4)):
        damage(chance, data)
    return bytes(data) + bases()[int(chance.random() * _BASES)][0]


# ---- an execution


def _pieces(chance: random.Random, data: bytes) -> Iterable[bytes]:
    """Cut data: half of it comes whole, some comes byte by byte."""
    kind = chance.random()
    if kind < 0.5:
        return (data,)
    if kind < 0.504:
        return (data[at : at + 1] for at in range(len(data)))
    cuts = sorted({int(chance.random() * len(data)) for _ in range(1 + int(chance.random() * 4))})
    return (data[at:end] for at, end in zip([0, *cuts], [*cuts, len(data)], strict=True))


def frames_once(chance: random.Random) -> Line:
    """Say damaged frames behind a request that is as it should be."""
    said = damaged_frames(chance)
    binary_only = chance.random() < 0.15
    line = Line(chance)
    line.say(requests()[1 if binary_only else -1])
    start = len(line.out)
    assert line.out.startswith(b"HTTP/1.1 101 ")
    pressed = chance.random() < 0.2
    for piece in _pieces(chance, said):
        line.say(piece)
        if pressed:
            line.pressed()
    come = read(said, bytes_max=BYTES_MAX, frames_max=FRAMES_MAX, binary_only=binary_only)
    _judge(line, bytes(line.out[start:]), come)
    return line


def _judge(line: Line, out: bytes, come: Come) -> None:
    """Compare what was said and passed on with what the bytes are."""
    session = line.session
    told = check_said(out)
    came = b"" if line.inner is None else line.inner.all
    if line.now > _BEGAN + FIRST_BYTES_SECONDS and line.inner is None and told.codes == [1008]:
        return  # nothing told the protocol in time
    if come.unsure or come.early:
        return
    assert len(told.codes) == bool(come.codes), f"Close {told.codes}, not {come.codes}"
    if come.codes:
        assert told.codes[0] in come.codes, f"Close {told.codes}, not {come.codes}"
    sure = come.payload[: len(come.payload) - come.cut]
    assert came.startswith(sure), "something is not passed on"
    if not come.codes & {UNSUPPORTED, NO_TEXT, TOO_BIG}:
        assert come.payload.startswith(came), "more is passed on than came"
    assert told.payload == came, "the answer is not what was passed on"
    left = iter(come.pings)
    assert all(pong in left for pong in told.pongs), "a Pong for no Ping"
    # After our own Close the time that went by may have been all that the other one has.
    assert session.closing == come.closed or (session.closing and line.now > _BEGAN)
    _finish(line, told.codes)


def _finish(line: Line, codes: list[int]) -> None:
    """What has ended goes within its time, whatever else comes, and says nothing more."""
    session = line.session
    if not codes:
        return
    assert session.seen.ending is not None
    if not session.closing:
        session.tick(line.now)
        line.say(b"\x81\x80\x00\x00\x00\x00\xff\xff")
        session.tick(line.now + _DONE_SECONDS)
    assert session.closing, "it does not end"
    assert session.data_to_send() == b"", "something is said behind Close"


def request_once(chance: random.Random) -> Line:
    """Say a damaged request."""
    said = damaged_request(chance)
    line = Line(chance)
    for piece in _pieces(chance, said):
        line.say(piece)
    out = bytes(line.out)
    if not out:
        assert not line.session.closing
        line.session.tick(line.now)
        line.session.tick(line.now + 11.0)
        out = line.session.data_to_send()
        assert out.startswith(b"HTTP/1.1 408 ")
    head, _, rest = out.partition(b"\r\n\r\n")
    status = HTTPStatus(int(head[9:12]))
    if status is HTTPStatus.SWITCHING_PROTOCOLS:
        check_said(rest)
        return line
    if not line.session.closing:  # more of what was refused may be on its way
        line.session.tick(line.now)
        line.say(b"x")
        line.session.tick(line.now + _DONE_SECONDS)
    assert line.session.closing
    assert line.session.data_to_send() == b""
    assert head.startswith(b"HTTP/1.1 ")
    if not said.startswith(b"HEAD"):
        assert b"\r\nContent-Length: %d\r\n" % len(rest) in head + b"\r\n"
    assert line.inner is None
    ending = line.session.seen.ending
    assert isinstance(ending, Ending)
    assert ending.cause in (Cause.PROTOCOL_ERROR, Cause.TIMED_OUT)
    return line


def held(root: object, seen: set[int] | None = None) -> int:
    """Return how many bytes of what came or goes out an object has, whatever it is made of."""
    seen = set() if seen is None else seen
    if id(root) in seen or isinstance(root, type) or callable(root):
        return 0
    seen.add(id(root))
    if isinstance(root, bytes | bytearray | str | memoryview):
        return len(root)
    if isinstance(root, dict):
        return sum(held(one, seen) for pair in root.items() for one in pair)
    if isinstance(root, list | tuple | set | frozenset):
        return sum(held(one, seen) for one in root)
    names = {name for kind in type(root).__mro__ for name in getattr(kind, "__slots__", ())}
    names |= set(getattr(root, "__dict__", ()))
    if isinstance(root, Inner | WebSocketLimits | PeerFacts):
        return 0
    return sum(held(getattr(root, name, None), seen) for name in sorted(names))


def execute(number: int) -> None:
    """Run one. Raises AssertionError, or whatever left the session."""
    chance = random.Random(number)
    once: Callable[[random.Random], Line] = frames_once if number % 8 else request_once
    line = once(chance)
    if number % WEIGHED == 0:
        size = held(line.session)
        assert size <= HELD_MAX, f"{size} bytes are held"
    line.end()


def run(first: int, count: int, until: float = float("inf")) -> tuple[int, list[int]]:
    """Run so many; returns how many were run, and the numbers of those that failed."""
    failed = []
    for number in range(first, first + count):
        if number % 1000 == 0 and time.monotonic() > until:
            return number - first, failed
        try:
            execute(number)
        except Exception as error:
            failed.append(number)
            print(f"execution {number}: {error!r}"[:300], flush=True)
    return count, failed


def _share(job: tuple[int, int, float]) -> tuple[int, list[int]]:
    return run(*job)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    wanted = parser.parse_args()
    began = time.monotonic()
    each = -(-wanted.executions // wanted.jobs)
    jobs = [
        (wanted.seed + number * each, each, began + wanted.seconds) for number in range(wanted.jobs)
    ]
    with multiprocessing.Pool(wanted.jobs) as pool:
        done = pool.map(_share, jobs, chunksize=1)
    count = sum(ran for ran, _ in done)
    failed = [number for _, numbers in done for number in numbers]
    rate = count / max(time.monotonic() - began, 1e-9)
    print(f"{count} executions, {rate:.0f} a second, {len(failed)} failed {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
