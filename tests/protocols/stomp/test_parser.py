"""Frames out of bytes: whole, byte by byte, in any chunks; runs, limits, and what partial input
costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.errors import Code
from protocols.stomp.frame import Head
from protocols.stomp.heads import FrameError
from protocols.stomp.limits import StompLimits
from protocols.stomp.parser import ACKS, Mode, Parser
from protocols.stomp.versions import Version
from tests.lanes import examples


class Collecting:
    """Keeps what it gets; leads SENDs to their destination unless they have a transaction."""

    def __init__(self, version: Version | None = Version.V1_2, limits: StompLimits | None = None):
        self.got: list[tuple[object, ...]] = []
        self.runs: list[int] = []
        self.led = 0
        self.error: FrameError | None = None
        self.halt_after: int | None = None
        self.parser = Parser(self, limits or StompLimits())
        if version is not None:
            self.parser.opened(version, self)

    def run(self, route: object, bodies: list[bytes], receipts: list[bytes]) -> None:
        assert not receipts or len(receipts) == len(bodies)
        self.runs.append(len(bodies))
        for index, body in enumerate(bodies):
            self.got.append((route, body, receipts[index] if receipts else None))
        self._maybe_halt()

    def amid(self) -> None:
        pass

    def lead(self, head: Head) -> None:
        self.led += 1
        if "transaction" not in head.headers:
            head.lead_to(head.headers["destination"], b"[", b"]")

    def frame(self, head: Head, body: bytes) -> None:
        self.got.append((head.command, tuple(head.headers.items()), body, head.receipt))
        self._maybe_halt()

    def broken(self, error: FrameError) -> None:
        assert self.error is None, "an error is told once"
        self.error = error

    def _maybe_halt(self) -> None:
        if self.halt_after is not None and len(self.got) >= self.halt_after:
            self.parser.halt()

    def feed(self, *chunks: bytes) -> list[tuple[object, ...]]:
        for chunk in chunks:
            self.parser.receive(chunk)
        return self.got


def send(body: bytes, *lines: str, length: bool = True) -> bytes:
    head = ["SEND", "destination:q", *lines]
    if length:
        head.append(f"content-length:{len(body)}")
    return "\n".join(head).encode() + b"\n\n" + body + b"\0"


SAMPLES = [
    send(b"hello"),
    send(b"hello", length=False),
    send(b"", length=False),
    send(b"with \0 inside and \n\n too"),
    send(b"r", "receipt:1"),
    send(b"t", "transaction:a", "receipt:2"),
    b"ACK\nid:c1-1-0001\n\n\0",
    b"ACK\nid:c1-1-0002\nreceipt:x\n\n\0",
    b"NACK\nid:1\n\n\0\n",
    b"SUBSCRIBE\r\nid:0\r\ndestination:q\r\n\r\n\0\r\n",
    b"BEGIN\ntransaction:t\n\n\0\n\n\r\n\n",
    b"SEND\r\ndestination:q\r\nreceipt:7\r\ncontent-length:2\r\n\r\nab\0",
    b"DISCONNECT\n\n\0",
]


def expected() -> list[tuple[object, ...]]:
    everything = Collecting()
    for sample in SAMPLES:
        one = Collecting()
        everything.got += one.feed(sample)
        assert one.error is None
    return everything.got


def test_each_sample_gives_one_frame() -> None:
    assert len(expected()) == len(SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES)
def test_whole_byte_by_byte_and_with_a_tail(sample: bytes) -> None:
    whole = Collecting().feed(sample)
    assert len(whole) == 1
    assert Collecting().feed(*(bytes([b]) for b in sample)) == whole
    tailed = Collecting()
    assert tailed.feed(sample + b"SEND\ndest") == whole
    assert tailed.feed(b"ination:q\n\nx\0")[1:] == [("q", b"[1]x", None)]
    for cut in range(1, len(sample)):
        assert Collecting().feed(sample[:cut], sample[cut:]) == whole


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.permutations(SAMPLES))
@settings(max_examples=examples(60), deadline=None)
def test_chunks_do_not_matter(sizes: list[int], samples: list[bytes]) -> None:
    data = b"".join(samples) * 2
    whole = Collecting().feed(data)
    assert len(whole) == 2 * len(SAMPLES)
    chunked = Collecting()
    pos = 0
    for size in [*sizes, len(data)]:
        chunked.parser.receive(data[pos : pos + size])
        pos += size
    assert chunked.got == whole
    assert chunked.parser.partial == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.binary(max_size=12),
            st.sampled_from([None, "1", "22", "x\\cy", "é"]),
            st.booleans(),
            st.sampled_from([None, "k:v", "k:w"]),
        ),
        max_size=25,
    ),
    st.sampled_from(list(Version)),
    st.sampled_from([b"\n", b"\r\n"]),
)
@settings(max_examples=examples(150), deadline=None)
def test_the_cache_changes_nothing(
    messages: list[tuple[str, bytes, str | None, bool, str | None]], version: Version, eol: bytes
) -> None:
    """Every frame gives the same in one stream, where heads are remembered, as on its own."""
    stream = b""
    alone: list[tuple[object, ...]] = []
    for destination, body, receipt, length, extra in messages:
        lines = ["SEND", f"destination:{destination}"]
        if receipt is not None:
            lines.append(f"receipt:{receipt}")
        if extra is not None:
            lines.append(extra)
        content = body if length else body.replace(b"\0", b"")
        if length:
            lines.append(f"content-length:{len(content)}")
        frame = eol.join(line.encode() for line in lines) + eol * 2 + content + b"\0"
        stream += frame
        alone += Collecting(version).feed(frame)
    together = Collecting(version)
    assert together.feed(stream) == alone
    assert together.error is None


def test_repeated_heads_are_decoded_once_and_come_as_one_run() -> None:
    collecting = Collecting()
    collecting.feed(b"".join(send(b"%d" % n) for n in range(10)) * 3)
    assert collecting.led == 1
    assert collecting.runs == [30]


def test_receipts_do_not_split_runs_and_are_not_decoded() -> None:
    collecting = Collecting()
    collecting.feed(b"".join(send(b"x", f"receipt:m-{n}") for n in range(100)))
    assert collecting.led == 1
    assert collecting.runs == [100]
    assert collecting.got[42] == ("q", b"[1]x", b"m-42")


def test_sizes_do_not_split_runs() -> None:
    collecting = Collecting()
    collecting.feed(b"".join(send(b"x" * n, f"receipt:{n}") for n in range(100)))
    assert collecting.led == 1
    assert collecting.runs == [100]
    assert collecting.got[42] == ("q", b"[42]" + b"x" * 42, b"42")


def test_frames_stay_in_order_between_runs() -> None:
    collecting = Collecting()
    collecting.feed(
        send(b"1") + send(b"2") + b"BEGIN\ntransaction:t\n\n\0" + send(b"3", "receipt:r")
        + send(b"4") + b"ACK\nid:a-1\n\n\0ACK\nid:a-2\n\n\0" + send(b"5")
    )  # fmt: skip
    assert [got[1] if got[0] in ("q", ACKS) else got[0] for got in collecting.got] == [
        b"[1]1", b"[1]2", "BEGIN", b"[1]3", b"[1]4", b"a-1", b"a-2", b"[1]5",
    ]  # fmt: skip
    assert collecting.runs == [2, 1, 1, 2, 1]


def test_short_acks_come_in_bulk_in_1_2_only() -> None:
    data = b"ACK\nid:a-1\n\n\0\nACK\nid:a-2\n\n\0ACK\nid:a-3\nreceipt:1\n\n\0"
    collecting = Collecting()
    collecting.feed(data)
    assert collecting.runs == [2]
    assert collecting.got[2] == ("ACK", (("id", "a-3"), ("receipt", "1")), b"", b"1")
    older = Collecting(Version.V1_1)
    older.feed(data)
    assert older.runs == []
    assert len(older.got) == 3


def test_s4_a_body_longer_than_its_content_length() -> None:
    frame = b"SEND\ndestination:q\ncontent-length:5\n\nHelloextra\0" + send(b"next")
    for version in (Version.V1_1, Version.V1_2):
        for chunks in ([frame], [bytes([b]) for b in frame]):
            collecting = Collecting(version)
            assert [got[1] for got in collecting.feed(*chunks)] == [b"[5]Hello", b"[4]next"]
    oldest = Collecting(Version.V1_0)
    assert oldest.feed(frame) == [("q", b"[5]Hello", None)]
    assert oldest.error is not None
    assert oldest.error.refusal.code is Code.BAD_FRAME


def test_a_repeated_receipt_header_is_never_cut_out() -> None:
    for version, wanted in ((Version.V1_2, b"1"), (Version.V1_1, b"2"), (Version.V1_0, b"2")):
        collecting = Collecting(version)
        collecting.feed(send(b"x", "receipt:9") + send(b"x", "receipt:1", "receipt:2") * 2)
        assert [got[2] for got in collecting.got] == [b"9", wanted, wanted]


@pytest.mark.parametrize(
    ("receipt", "code"),
    [
        (b"a\\tb", Code.BAD_HEADER),
        (b"\xff", Code.BAD_HEADER),
        (b"a\0b", Code.BAD_HEADER),
        (b"a\rb", Code.BAD_HEADER),
        (b"x" * 9000, Code.TOO_LARGE),
    ],
)
def test_a_bad_receipt_is_found_behind_the_cache_too(receipt: bytes, code: Code) -> None:
    collecting = Collecting()
    good = send(b"x", "receipt:1")
    bad = good.replace(b"receipt:1", b"receipt:" + receipt)
    collecting.feed(good * 2 + bad + good)
    assert [got[2] for got in collecting.got] == [b"1", b"1"], "those before it count, once"
    assert collecting.error is not None
    assert collecting.error.refusal.code is code


def test_1_0_trims_a_receipt_also_behind_the_cache() -> None:
    collecting = Collecting(Version.V1_0)
    collecting.feed(send(b"x", "receipt:1") + send(b"x", "receipt: 2"))
    assert [got[2] for got in collecting.got] == [b"1", b"2"]


# ---- halting


def test_a_halted_parser_keeps_input_and_goes_on_where_it_was() -> None:
    frames = [send(b"%d" % n) + b"BEGIN\ntransaction:%d\n\n\0" % n for n in range(5)]
    whole = Collecting().feed(*frames)
    for after in range(1, 10):
        collecting = Collecting()
        collecting.halt_after = after
        collecting.feed(b"".join(frames[:3]))
        assert len(collecting.got) == min(after, 6)
        collecting.feed(*frames[3:])
        collecting.halt_after = None
        collecting.parser.resume()
        assert collecting.got == whole


def test_what_is_broken_behind_a_halt_is_told_after_it() -> None:
    collecting = Collecting()
    collecting.halt_after = 1
    collecting.feed(send(b"1") + send(b"2") + b"nonsense\n\n\0")
    assert len(collecting.got) == 2
    assert collecting.error is None
    collecting.halt_after = None
    collecting.parser.resume()
    assert collecting.error is not None


def test_nothing_is_taken_after_an_error_or_a_drop() -> None:
    broken = Collecting()
    broken.feed(b"nonsense\n\n\0" + send(b"x"), send(b"y"))
    assert broken.got == []
    dropped = Collecting()
    dropped.parser.drop()
    dropped.feed(send(b"x"))
    for call in (dropped.parser.resume, dropped.parser.halt):
        with pytest.raises(AssertionError, match="nothing is read any more"):
            call()
    assert dropped.got == []
    assert dropped.parser.partial == 0


def test_forget_decodes_anew() -> None:
    collecting = Collecting()
    collecting.feed(send(b"1"), send(b"2"))
    collecting.parser.forget()
    collecting.feed(send(b"3"))
    assert collecting.led == 2


# ---- limits while unparsed [T9]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"S" * 34, Code.BAD_FRAME),
        (b"SEND\na:" + b"x" * 70_000, Code.TOO_LARGE),
        (b"SEND\n" + b"a:\n" * 102, Code.TOO_MANY),
        (b"SEND\ndestination:q\n\n" + b"x" * 2000, Code.TOO_LARGE),
        (b"SEND\ndestination:q\ncontent-length:2\n\nxx" + b"x" * 2000, Code.TOO_LARGE),
        (b"\0", Code.BAD_FRAME),
        (b"\rX", Code.BAD_FRAME),
        (b"SEND\ndestination:q\0", Code.BAD_FRAME),
        (b"\x16\x03\x01", Code.BAD_FRAME),
        (b"{}", Code.BAD_FRAME),
    ],
)
def test_endless_and_impossible_input_ends_while_it_is_unparsed(data: bytes, code: Code) -> None:
    limits = StompLimits(body_bytes_max=1000)
    for chunks in ([data], [data[i : i + 1000] for i in range(0, len(data), 1000)]):
        collecting = Collecting(limits=limits)
        collecting.feed(*chunks)
        assert collecting.error is not None
        assert collecting.error.refusal.code is code
        assert collecting.got == []
    if len(data) < 5000:
        slow = Collecting(limits=limits)
        slow.feed(*(bytes([b]) for b in data))
        assert slow.error is not None


def test_text_bodies_above_the_limit_are_refused_also_when_they_are_whole() -> None:
    collecting = Collecting(limits=StompLimits(body_bytes_max=1000))
    collecting.feed(send(b"x" * 1000, length=False) + send(b"x" * 1001, length=False))
    assert len(collecting.got) == 1
    assert collecting.error is not None
    assert collecting.error.refusal.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("data", "silent"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"POST /x HTTP/1.1\r\n\r\nCONNECT\naccept-version:1.2\n\n\0", True),
        (b"CONNECT example.com:443 HTTP/1.1\r\n\r\n", True),
        (b"options * HTTP/1.1\r\n\r\n", True),
        (b"Host: x\r\n", True),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", True),
        (b"AMQP\0\1\0\0", False),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n\r\n", False),
        (b"\x1f\x8b\x08\x00", False),
        (b"\n" * 40 + b"CONNECT\n\n\0", False),
        (b"hello?\n\n\0", False),
        (b"X" * 50, False),
        (b"CONNECT\n" + b"a:b\n" * 20, False),
        (b"CONNECT\na:" + b"b" * 20_000, False),
        (b"CONNECT\ncontent-length:20000\n\n", False),
        (b"CONNECT\n\n" + b"x" * 20_000, False),
    ],
)
def test_t14_what_is_no_connect_ends_at_once(data: bytes, silent: bool) -> None:
    collecting = Collecting(version=None)
    collecting.feed(data)
    assert collecting.error is not None
    assert collecting.error.silent is silent
    slow = Collecting(version=None)
    slow.feed(*(bytes([b]) for b in data))
    assert slow.error is not None
    assert collecting.got == slow.got == []


def test_line_ends_before_connect_are_taken_up_to_a_bound() -> None:
    collecting = Collecting(version=None)
    collecting.feed(b"\n" * 10, b"\r\n" * 6 + b"CONNECT\r\naccept-version:1.2\r\n\r\n\0")
    assert [got[0] for got in collecting.got] == ["CONNECT"]
    noisy = Collecting(version=None)
    noisy.feed(*[b"\n"] * 40)
    assert noisy.error is not None


def test_line_ends_between_frames_are_not_kept() -> None:
    collecting = Collecting()
    for _ in range(100):
        collecting.feed(b"\n" * 1000, b"\r\n" * 500)
    assert collecting.parser.partial == 0
    assert collecting.error is None
    assert collecting.feed(send(b"x")) == [("q", b"[1]x", None)]


# ---- what it costs


def looked_at(data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many bytes were copied and looked at for `data` in chunks of `size`."""
    looked = 0
    parse = Parser._parse

    def counting(self: Parser, buf: bytes) -> None:
        nonlocal looked
        looked += len(buf)
        parse(self, buf)

    collecting = Collecting()
    with monkeypatch.context() as patch:
        patch.setattr(Parser, "_parse", counting)
        collecting.feed(*(data[start : start + size] for start in range(0, len(data), size)))
    assert len(collecting.got) == 1
    return looked


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("data", "times"),
    [
        (send(b"x" * 200_000), 2),
        (send(b"x" * 200_000, length=False), 2),
        (send(b"x" * 10, *(f"h{n}:" + "v" * 600 for n in range(90))), 100),
    ],
    ids=["counted body", "text body", "long head"],
)
def test_t37_tiny_chunks_are_looked_at_once_a_line_and_once_a_body(
    data: bytes, times: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head is looked at again for each of its at most 100 lines, a body only when it is there."""
    assert looked_at(data, size, monkeypatch) <= times * len(data)


def test_the_cache_is_bounded() -> None:
    collecting = Collecting()
    for n in range(2000):
        collecting.feed(send(b"x", f"unique:{n}"))
    collecting.feed(send(b"x", "long:" + "v" * 2000) * 2)
    parser = collecting.parser
    assert len(parser._known.by_key) <= 512
    assert len(parser._known._bases) <= 512
    assert max(map(len, parser._known.by_key)) <= 1024


@pytest.mark.parametrize("mode", list(Mode))
def test_what_each_mode_does_with_what_comes(mode: Mode) -> None:
    collecting = Collecting()
    parser = collecting.parser
    if mode is Mode.HALTED:
        parser.halt()
        parser.halt()
    elif mode is Mode.DROPPED:
        parser.drop()
        parser.drop()
    assert parser.mode is mode
    collecting.feed(send(b"x"))
    assert len(collecting.got) == (1 if mode is Mode.PARSING else 0)
    assert parser.partial == (len(send(b"x")) if mode is Mode.HALTED else 0)
    if mode is not Mode.DROPPED:
        parser.resume()
        assert (parser.mode, len(collecting.got)) == (Mode.PARSING, 1)


def test_a_version_is_agreed_on_once() -> None:
    collecting = Collecting()
    with pytest.raises(AssertionError, match="twice"):
        collecting.parser.opened(Version.V1_2, collecting)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends_in_masses_cost_little_memory(end: bytes) -> None:
    """Heart-beats, as many as a WebSocket message may hold, inflated from a few hundred bytes."""
    collecting = Collecting()
    collecting.feed(b"\n")
    data = end * ((1 << 20) // len(end))
    tracemalloc.start()
    try:
        collecting.feed(data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert collecting.error is None
    assert most < 4 * len(data)
