"""The cases of Autobahn's test suite that are about the protocol's rules, by their numbers.

The numbers, and what is sent in each, are facts of that suite; what is told here is what this
gateway does. It is no echo server: a session that repeats its payload stands inside. It differs
from an echo server where its design says so:

    2.10, 2.11        of several Pings in one read the last one is answered [RFC 6455 5.5.3]
    1.1.1, 1.2.1, 6.1 a message without payload says nothing inside, so nothing comes back
    5.x, 6.x, 7.1.5   payload goes inside as it comes, so a part of a message comes back before its
                      end, and also of one that never ends well
    9.x               a message above the acceptor's limit, or in too many frames, ends with 1009;
                      a little more than the limit is sent of it

Each is sent whole, frame by frame, byte by byte, and cut by chance, which must make no difference.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from protocols.websocket.limits import FRAMES_MAX, WebSocketLimits
from tests.lanes import QUICK
from tests.protocols.websocket.client import BINARY, CLOSE, PING, PONG, TEXT, close, frame, request
from tests.protocols.websocket.inner import Built, Echo
from tests.protocols.websocket.reference import NO_CODE, Said, check_said

MIB = 1 << 20
CONTINUATION = 0
#: What has more bytes is not sent in chops of one.
SMALL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Case:
    """`sent` are frames; `back` is what is repeated, all of it or, where `part` is, some of it.

    Where none of the frames ends the connection, a Close of 1000 is sent behind them. `pings` are
    what waits for a Pong; `told` is the code of the gateway's Close, and after `soon` frames it has
    come already.
    """

    number: str
    sent: list[bytes]
    back: bytes = b""
    told: int = 1000
    pings: tuple[bytes, ...] = ()
    binary: bool = False
    part: bool = False
    soon: int | None = None
    ends: bool = False

    @property
    def stream(self) -> list[bytes]:
        """Return what is sent, with its end."""
        return self.sent if self.ends else [*self.sent, close()]


def text(data: bytes, *, fin: bool = True) -> bytes:
    return frame(TEXT, data, fin=fin)


def goes_on(data: bytes, *, fin: bool = True) -> bytes:
    return frame(CONTINUATION, data, fin=fin)


def in_frames(opcode: int, data: bytes, size: int, *, of: int = 0) -> list[bytes]:
    """Return a message in frames of a size; `of` is how many bytes it would have had."""
    end = of or len(data)
    return [
        frame(
            CONTINUATION if at else opcode,
            data[at : at + size],
            fin=at + size >= end,
            length=min(size, end - at),
        )
        for at in range(0, len(data), size)
    ]


HELLO = b"Hello, world!"
RAW = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
SIZES = (0, 125, 126, 127, 128, 65_535, 65_536, 65_536)


def framing() -> Iterator[Case]:
    for number, size in enumerate(SIZES, 1):
        yield Case(f"1.1.{number}", [text(b"*" * size)], b"*" * size)
        data = b"\xfe" * size
        yield Case(f"1.2.{number}", [frame(BINARY, data)], data, binary=True)


def pings() -> Iterator[Case]:
    for number, data in ((1, b""), (2, HELLO), (3, RAW), (4, b"\xfe" * 125), (6, b"\xfe" * 125)):
        yield Case(f"2.{number}", [frame(PING, data)], pings=(data,))
    yield Case("2.5", [frame(PING, b"\xfe" * 126)], told=1002, ends=True)
    yield Case("2.7", [frame(PONG)])
    yield Case("2.8", [frame(PONG, b"nobody asked")])
    yield Case("2.9", [frame(PONG, b"nobody asked"), frame(PING, b"asked")], pings=(b"asked",))
    ten = tuple(b"payload-%d" % number for number in range(10))
    for number in (10, 11):
        yield Case(f"2.{number}", [frame(PING, one) for one in ten], pings=ten)


def reserved() -> Iterator[Case]:
    """Bits and opcodes that mean nothing: what was said before is repeated, a Ping behind not."""
    yield Case("3.1", [frame(TEXT, HELLO, reserved=1)], told=1002, ends=True)
    for bits in (2, 3, 4):
        said = [text(HELLO), frame(TEXT, HELLO, reserved=bits), frame(PING)]
        yield Case(f"3.{bits}", said, HELLO, 1002, ends=True)
    yield Case("3.5", [frame(BINARY, RAW, reserved=5)], told=1002, ends=True)
    yield Case("3.6", [frame(PING, HELLO, reserved=6)], told=1002, ends=True)
    yield Case("3.7", [frame(CLOSE, reserved=7)], told=1002, ends=True)
    for row, opcodes in ((1, (3, 4, 5, 6, 7)), (2, (11, 12, 13, 14, 15))):
        for number, opcode in enumerate(opcodes, 1):
            data = HELLO if number in (2, 4, 5) else b""
            wrong = frame(opcode, data)
            if number < 3:
                yield Case(f"4.{row}.{number}", [wrong], told=1002, ends=True)
            else:
                said = [text(HELLO), wrong, frame(PING)]
                yield Case(f"4.{row}.{number}", said, HELLO, 1002, ends=True)


ONE, TWO, THREE, FOUR = b"fragment1", b"fragment2", b"fragment3", b"fragment4"


def fragments() -> Iterator[Case]:
    for number, opcode in ((1, PING), (2, PONG)):
        said = [frame(opcode, ONE, fin=False), goes_on(TWO)]
        yield Case(f"5.{number}", said, told=1002, ends=True)
    for number in (3, 4, 5):
        yield Case(f"5.{number}", [text(ONE, fin=False), goes_on(TWO)], ONE + TWO)
    for number in (6, 7, 8):
        said = [text(ONE, fin=False), frame(PING, b"between"), goes_on(TWO)]
        yield Case(f"5.{number}", said, ONE + TWO, pings=(b"between",))
    for number in (9, 10, 11):
        yield Case(f"5.{number}", [goes_on(ONE), text(HELLO)], told=1002, ends=True)
    for number in (12, 13, 14):
        said = [goes_on(ONE, fin=False), text(HELLO)]
        yield Case(f"5.{number}", said, told=1002, ends=True)
    said = [text(ONE, fin=False), goes_on(TWO), goes_on(THREE, fin=False), text(FOUR)]
    yield Case("5.15", said, ONE + TWO, 1002, ends=True)
    for number, fin in ((16, False), (17, True)):
        said = [goes_on(ONE, fin=fin), text(TWO, fin=False), goes_on(THREE)] * 2
        yield Case(f"5.{number}", said, told=1002, ends=True)
    yield Case("5.18", [text(ONE, fin=False), text(TWO)], ONE, 1002, ends=True)
    said = [text(ONE, fin=False), goes_on(TWO, fin=False), frame(PING, b"1")]
    said += [goes_on(THREE, fin=False), goes_on(FOUR, fin=False), frame(PING, b"2"), goes_on(ONE)]
    for number in (19, 20):
        yield Case(f"5.{number}", said, ONE + TWO + THREE + FOUR + ONE, pings=(b"1", b"2"))


KAPPA = bytes.fromhex("cebae1bdb9cf83cebcceb5")
UMLAUTS = "Hello-µ@ßöäüàá-UTF-8!!".encode()
#: Row -> sequences in hexadecimal; those that are UTF-8 stand before the bar. The suite numbers
#: them as they stand here; in rows 6 and 11 some of both kinds are mixed.
SEQUENCES = {
    5: "68656c6c6f24776f726c64 68656c6c6fc2a2776f726c64 68656c6c6fe282ac776f726c64"
    " 68656c6c6ff0a4ada2776f726c64 cebae1bdb9cf83cebcceb5 |",
    7: "00 c280 e0a080 f0908080 |",
    8: "| f888808080 fc8480808080",
    9: "7f dfbf efbfbf f48fbfbf |",
    10: "| f7bfbfbf fbbfbfbfbf fdbfbfbfbfbf",
    11: "ed9fbf ee8080 efbfbd f48fbfbf | f4908080",
    12: "| 80 bf 80bf 80bf80 80bf80bf 80bf80bf80 80bf80bf80bf " + bytes(range(0x80, 0xBF)).hex(),
    13: "| "
    + " ".join(
        b"".join(bytes([one, 0x20]) for one in range(*ends)).hex()
        for ends in ((0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD))
    ),
    14: "| c0 e080 f08080 f8808080 fc80808080 df efbf f7bfbf fbbfbfbf fdbfbfbfbf",
    15: "| c0e080f08080f8808080fc80808080dfefbff7bfbffbbfbfbffdbfbfbfbf",
    16: "| fe ff fefeffff",
    17: "| c0af e080af f08080af f8808080af fc80808080af",
    18: "| c1bf e09fbf f08fbfbf f887bfbfbf fc83bfbfbfbf",
    19: "| c080 e08080 f0808080 f880808080 fc8080808080",
    20: "| eda080 edadbf edae80 edafbf edb080 edbe80 edbfbf",
    21: "| eda080edb080 eda080edbfbf edadbfedb080 edadbfedbfbf"
    " edae80edb080 edae80edbfbf edafbfedb080 edafbfedbfbf",
    22: "efbfbe efbfbf "
    + " ".join(
        chr(plane << 16 | last).encode().hex()
        for plane in range(1, 17)
        for last in (0xFFFE, 0xFFFF)
    )
    + " |",
    23: "efbfb9 efbfba efbfbb efbfbc efbfbd efbfbe efbfbf |",
}


def utf8() -> Iterator[Case]:
    yield Case("6.1.1", [text(b"")])
    yield Case("6.1.2", [text(b"", fin=False), goes_on(b"", fin=False), goes_on(b"")])
    yield Case("6.1.3", [text(b"", fin=False), goes_on(HELLO, fin=False), goes_on(b"")], HELLO)
    yield Case("6.2.1", [text(UMLAUTS)], UMLAUTS)
    yield Case("6.2.2", [text(UMLAUTS[:13], fin=False), goes_on(UMLAUTS[13:])], UMLAUTS)
    yield Case("6.2.3", in_frames(TEXT, UMLAUTS, 1), UMLAUTS)
    yield Case("6.2.4", in_frames(TEXT, KAPPA, 1), KAPPA)
    bad = KAPPA + b"\xed\xa0\x80edited"
    yield Case("6.3.1", [text(bad)], KAPPA, 1007, part=True, ends=True)
    yield Case("6.3.2", in_frames(TEXT, bad, 1), KAPPA, 1007, part=True, ends=True)
    # The byte that makes it no UTF-8 ends it, also where its message goes on.
    bad = KAPPA + b"\xf4\x90\x80\x80edited"
    for number, ends in ((1, 15), (2, 13)):
        begins = 11 if number == 1 else 12
        said = [text(bad[:begins], fin=False), goes_on(bad[begins:ends], fin=False)]
        said.append(goes_on(bad[ends:]))
        yield Case(f"6.4.{number}", said, KAPPA, 1007, part=True, soon=2, ends=True)
        whole = text(bad)
        cuts = [0, len(whole) - len(bad) + begins, len(whole) - len(bad) + ends, len(whole)]
        parts = [whole[at:end] for at, end in itertools.pairwise(cuts)]
        yield Case(f"6.4.{number + 2}", parts, KAPPA, 1007, part=True, soon=2, ends=True)
    for number in range(1, len(KAPPA) + 1):
        yield sequence(f"6.6.{number}", KAPPA[:number])
    for row, rest in SEQUENCES.items():
        good, _, wrong = rest.partition("|")
        for number, digits in enumerate(f"{good} {wrong}".split(), 1):
            case = sequence(f"6.{row}.{number}", bytes.fromhex(digits))
            assert (case.told == 1000) is (number <= len(good.split())), case.number
            yield case


def sequence(number: str, data: bytes) -> Case:
    """Return the case of one text message."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return Case(number, [text(data)], data[: error.start], 1007, part=True, ends=True)
    return Case(number, [text(data)], data)


CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
WRONG_CODES = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)


def closing() -> Iterator[Case]:
    yield Case("7.1.1", [text(HELLO), close()], HELLO, ends=True)
    yield Case("7.1.2", [close(), close(None)], ends=True)
    yield Case("7.1.3", [close(), frame(PING)], ends=True)
    yield Case("7.1.4", [close(), text(HELLO)], ends=True)
    yield Case("7.1.5", [text(ONE, fin=False), close(), goes_on(TWO)], ONE, ends=True)
    large = b"BAsd7&jh23" * 26_214
    said = [text(large), text(HELLO), close(), frame(PING)]
    yield Case("7.1.6", said, large + HELLO, ends=True)
    yield Case("7.3.1", [close(None)], told=NO_CODE, ends=True)
    yield Case("7.3.2", [frame(CLOSE, b"a")], told=1002, ends=True)
    yield Case("7.3.3", [close()], ends=True)
    yield Case("7.3.4", [close(1000, "so long")], ends=True)
    yield Case("7.3.5", [close(1000, "*" * 123)], ends=True)
    yield Case("7.3.6", [close(1000, "*" * 124)], told=1002, ends=True)
    said = [frame(CLOSE, b"\x03\xe8" + KAPPA + b"\xed\xa0\x80edited")]
    yield Case("7.5.1", said, told=1007, ends=True)
    for number, code in enumerate(CODES, 1):
        yield Case(f"7.7.{number}", [close(code)], told=code, ends=True)
    for number, code in enumerate(WRONG_CODES, 1):
        yield Case(f"7.9.{number}", [close(code)], told=1002, ends=True)
    yield Case("7.13.1", [close(5000)], told=1002, ends=True)
    yield Case("7.13.2", [close(65_535)], told=1002, ends=True)


def limits() -> Iterator[Case]:
    """Messages of 64 KiB to 16 MiB, whole and in frames; the limit here is one of 1 MiB."""
    for row, opcode in ((1, TEXT), (2, BINARY)):
        binary = opcode == BINARY
        for number, size in enumerate((1 << 16, 1 << 18, MIB, 4 * MIB, 8 * MIB, 16 * MIB), 1):
            data = (b"\x00\xfe\x23\xfa" if binary else b"BAs7") * (min(size, 2 * MIB) // 4)
            most = size <= MIB
            data = data[: MIB + 5_000]
            yield Case(
                f"9.{row}.{number}",
                [frame(opcode, data, length=size)],
                data[:MIB],
                1000 if most else 1009,
                binary=binary,
                part=not most,
                ends=not most,
            )
        data = (b"\xfe" if binary else b"*") * (MIB + 5_000)
        for number in range(1, 10):
            size = 64 * 4 ** (number - 1)
            said = in_frames(opcode, data, size, of=4 * MIB)[: FRAMES_MAX + 20]
            yield Case(
                f"9.{row + 2}.{number}", said, data, 1009, binary=binary, part=True, ends=True
            )
        data = (b"\x00\xfe\x23\xfa" if binary else b"BAs7") * (MIB // 4)
        for number in range(1, 7):
            said = [frame(opcode, data)]
            yield Case(f"9.{row + 4}.{number}", said, data, binary=binary)
        for number, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            data = (b"\xfe" if binary else b"*") * size
            said = [frame(opcode, data)] * 1000
            yield Case(f"9.{row + 6}.{number}", said, data * 1000, binary=binary)
    data = b"*" * (MIB + 5_000)
    said = in_frames(TEXT, data, 4096, of=4 * MIB)
    yield Case("9.9.1", said, data, 1009, part=True, ends=True)


Cut = Callable[[Case, list[bytes]], Iterable[bytes]]


def whole(_: Case, sent: list[bytes]) -> Iterable[bytes]:
    return [b"".join(sent)]


def by_frames(_: Case, sent: list[bytes]) -> Iterable[bytes]:
    return sent


def by_bytes(_: Case, sent: list[bytes]) -> Iterable[bytes]:
    """In chops of one byte, or of as many as the suite has where it sends much."""
    data = b"".join(sent)
    size = 1 if len(data) <= SMALL_BYTES else 997
    return (data[at : at + size] for at in range(0, len(data), size))


def by_chance(case: Case, sent: list[bytes]) -> Iterable[bytes]:
    data = b"".join(sent)
    chance = random.Random(case.number)
    cuts = sorted({chance.randrange(len(data)) for _ in range(20)})
    return (data[at:end] for at, end in zip([0, *cuts], [*cuts, len(data)], strict=True))


def say(built: Built, pieces: Iterable[bytes], *, hurried: bool) -> bytes:
    """Return all that the gateway says to these."""
    session = built.session
    session.spent = lambda: hurried
    session.receive_data(request(Sec_WebSocket_Protocol="v12.stomp"), 1.0)
    assert session.data_to_send().startswith(b"HTTP/1.1 101 ")
    out = bytearray()
    for piece in pieces:
        if session.closing:
            break
        session.receive_data(piece, 1.0)
        out += session.data_to_send()
        while session.behind:
            session.go_on(1.0)
            out += session.data_to_send()
    return bytes(out)


def judge(case: Case, said: Said, built: Built) -> None:
    assert said.codes == [case.told]
    if case.part:
        assert case.back.startswith(said.payload) or not said.payload
    else:
        assert said.payload == case.back
    kinds = {opcode for opcode, _ in said.frames if opcode < CLOSE}
    assert kinds <= {BINARY if case.binary else TEXT}
    left = iter(case.pings)
    assert all(pong in left for pong in said.pongs), "a Pong for no Ping, or out of order"
    assert said.pongs[-1:] == list(case.pings[-1:])
    for _, inner in built.made:
        assert inner.lost == 1, "what is inside is told of the end"
        assert isinstance(inner, Echo)
        assert inner.all == said.payload


CUTS = [whole, by_frames, by_bytes, by_chance]
CASES = [
    *framing(),
    *pings(),
    *reserved(),
    *fragments(),
    *utf8(),
    *closing(),
    *limits(),
]


@pytest.mark.parametrize("cut", [whole, by_bytes] if QUICK else CUTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)
def test_cases(case: Case, cut: Cut) -> None:
    for hurried in (False, True):
        built = Built(limits=WebSocketLimits(message_bytes_max=MIB), kind=Echo)
        judge(case, check_said(say(built, cut(case, case.stream), hurried=hurried)), built)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.soon is not None], ids=lambda case: case.number
)
def test_what_is_wrong_ends_it_at_once(case: Case) -> None:
    built = Built(kind=Echo)
    assert check_said(say(built, case.sent[: case.soon], hurried=False)).codes == [case.told]


def test_every_case_of_the_suites_rules_is_here() -> None:
    """As many as the suite counts in these categories."""
    counted = {
        "1": 16, "2": 11, "3": 7, "4": 10, "5": 20, "6": 145, "7": 37, "9": 55,
    }  # fmt: skip
    numbers = [case.number for case in CASES]
    assert len(set(numbers)) == len(numbers)
    found = {row: sum(number.split(".")[0] == row for number in numbers) for row in counted}
    assert found == counted
