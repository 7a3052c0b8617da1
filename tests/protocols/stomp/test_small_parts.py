"""Outbox, kept bytes, holds, heart-beats and MESSAGE frames, each on its own."""

from __future__ import annotations

import pytest

from gateway.model import stomp_form
from gateway.model.budget import Budget
from gateway.model.errors import Code, RefusedError
from gateway.model.message import EXPIRES, MAYBE_SEEN, ONE_DELIVERY, STOMP, Message
from protocols.stomp.heartbeat import Pulse, agree
from protocols.stomp.holds import CumulativeHold, Hold, IndividualHold
from protocols.stomp.kept import Kept
from protocols.stomp.limits import StompLimits
from protocols.stomp.message_frames import MessageFrames, rewritten
from protocols.stomp.outbox import Outbox
from protocols.stomp.versions import Version
from tests.protocols.stomp.peer import convert, frames, message

LIMITS = StompLimits()

# ---- outbox: what leaves when


def test_confirmations_leave_in_order_and_never_before_their_ticket() -> None:
    outbox = Outbox()
    outbox.confirm(2, b"a")
    outbox.confirm(0, b"b")
    outbox.confirm(3, b"c")
    outbox.write(b"!")
    assert outbox.take() == b"!"
    outbox.durable_up_to(1)
    assert outbox.take() == b""
    assert outbox.asks()
    assert not outbox.asks(), "once is enough until the journal answers"
    outbox.durable_up_to(2)
    assert outbox.take() == b"ab"
    outbox.durable_up_to(5)
    assert outbox.take() == b"c"
    assert not outbox.asks()
    outbox.confirm(4, b"d")
    assert outbox.take() == b"d", "5 is on disk, so 4 is"
    outbox.confirm(0, b"e")
    assert outbox.take() == b"e"


def test_what_follows_a_confirmation_is_called_when_it_leaves() -> None:
    outbox = Outbox()
    called: list[str] = []
    outbox.confirm(0, b"", lambda: called.append("now"))
    outbox.confirm(1, b"", lambda: called.append("later"))
    assert called == ["now"]
    outbox.durable_up_to(1)
    assert called == ["now", "later"]


def test_outbox_size_and_needed_ticket() -> None:
    outbox = Outbox()
    outbox.write(b"123")
    outbox.write(b"4")
    assert outbox.size == 4
    assert outbox.take() == b"1234"
    assert outbox.size == 0
    outbox.note(7)
    outbox.note(3)
    outbox.confirm(5, b"x")
    assert outbox.needed == 7
    outbox.forget_waiting()
    outbox.durable_up_to(9)
    assert outbox.take() == b""


def test_frames_are_told_apart_where_messages_carry_them() -> None:
    outbox = Outbox(apart=True)
    said = [
        *(b"CONNECTED\nversion:1.2\n\n\0\n", b"\n"),
        *(b"MESSAGE\n\na\0\nb\0\n", b"MESSAGE\n\n\0\n", b"MESSAGE\n\nRECEIPT\n\0\n"),
        *(b"RECEIPT\nreceipt-id:1\n\n\0\n", b"RECEIPT\nreceipt-id:\\n\n\n\0\n"),
        b"ERROR\nmessage:x\n\na \0\n in a body\0\n",
    ]
    outbox.write(said[0])
    outbox.confirm(1, b"".join(said[5:7]))
    outbox.write(said[1])
    outbox.write(b"".join(said[2:5]), [len(one) for one in said[2:5]])
    outbox.durable_up_to(1)
    outbox.confirm(1, said[7])
    outbox.confirm(1, b"")
    data = outbox.take()
    outbox.write(b"later")
    assert outbox.apart(data) == [said[0], said[1], *said[2:5], *said[5:7], said[7]]
    assert list(outbox.apart(outbox.take())) == [b"later"]
    assert outbox.take() == b""
    plain = Outbox()
    plain.write(b"".join(said[2:5]), [1, 2])
    assert plain.apart(plain.take()) == (b"".join(said[2:5]),)


def test_the_journal_is_asked_once_for_what_waits_until_it_has_answered() -> None:
    outbox = Outbox()
    assert not outbox.asks(), "nothing waits"
    outbox.confirm(3, b"a")
    assert [outbox.asks(), outbox.asks()] == [True, False]
    outbox.durable_up_to(1)
    assert [outbox.asks(), outbox.asks()] == [True, False]
    outbox.failed()
    assert not outbox.asks()
    assert outbox.waiting_bytes == 0
    outbox.confirm(4, b"b")
    assert outbox.asks()


def test_who_found_no_room_is_asked_again_once() -> None:
    class Hungry:
        def __init__(self) -> None:
            self.asked = 0

        def again(self) -> None:
            self.asked += 1
            if self.asked == 1:
                outbox.starved.append(self)  # there was still no room

    outbox = Outbox()
    one = Hungry()
    outbox.starved.append(one)
    outbox.feed()
    assert (one.asked, outbox.starved) == (1, [one])
    outbox.feed()
    outbox.feed()
    assert (one.asked, outbox.starved) == (2, [])


# ---- what is kept


def test_what_a_connection_keeps_is_counted_among_all() -> None:
    limits = StompLimits(unfinished=Budget(100), unfinished_free_bytes=10)
    one, other = Kept(limits), Kept(limits)
    assert one.count(90) is None
    assert other.count(10) is None
    assert limits.unfinished.held == 100
    assert other.count(9) is None
    assert one.count(80) is None
    assert other.count(10) is None, "so little is free"
    refusal = one.count(120)
    assert refusal is not None
    assert refusal.code is Code.MEMORY_FULL
    assert "120 of them this one's" in refusal.text
    assert one.count(119) is None, "less is no reason to end"
    assert other.count(10) is None
    one.count(0)
    assert (one.size, limits.unfinished.held) == (0, 10)


# ---- holds


def numbered(*seqs: int) -> list[Message]:
    return [message(b"", seq) for seq in seqs]


def taken(hold: Hold, number: int) -> list[int] | None:
    messages = hold.take(number)
    return None if messages is None else [m.seq for m in messages]


def test_a_cumulative_hold_settles_all_up_to_a_number() -> None:
    hold = CumulativeHold()
    assert taken(hold, 1) is None
    hold.add(1, numbered(11, 12, 13))
    hold.add(4, numbered(14))
    hold.add(5, numbered(15, 16))
    assert hold.count == 6
    assert taken(hold, 2) == [11, 12]
    assert taken(hold, 2) is None
    assert taken(hold, 1) is None
    assert taken(hold, 7) is None
    assert taken(hold, 5) == [13, 14, 15]
    assert hold.count == 1
    assert [m.seq for m in hold.take_all()] == [16]
    assert hold.count == 0
    assert taken(hold, 6) is None


def test_an_individual_hold_settles_one() -> None:
    hold = IndividualHold()
    hold.add(1, numbered(11, 12, 13))
    assert taken(hold, 2) == [12]
    assert taken(hold, 2) is None
    assert taken(hold, 9) is None
    assert hold.count == 2
    assert [m.seq for m in hold.take_all()] == [11, 13]
    assert hold.count == 0


# ---- heart-beats: the table of 7.8


@pytest.mark.parametrize(
    ("header", "limits", "reply", "ttl_ms", "beat_ms"),
    [
        (None, {}, None, 60_000, 0),
        ("0,0", {}, "0,30000", 60_000, 0),
        ("1000,0", {}, "0,1000", 2_000, 0),
        ("1,0", {}, "0,500", 1_000, 0),
        ("400,0", {}, "0,500", 1_000, 0),
        ("500,0", {}, "0,500", 1_000, 0),
        ("0,1", {}, "500,30000", 60_000, 500),
        ("0,500", {}, "500,30000", 60_000, 500),
        ("0,9000", {}, "9000,30000", 60_000, 9_000),
        ("10000,10000", {}, "10000,10000", 20_000, 10_000),
        (" 10 , 20 ", {}, "500,500", 1_000, 500),
        ("-1,0", {}, "0,30000", 60_000, 0),
        ("1099511627776,0", {}, "0,1099511627776", 2_199_023_255_552, 0),
        ("0,0", {"ttl_ms": 1_000, "ttl_min_ms": 5_000, "ttl_max_ms": 10_000}, "0,500", 1_000, 0),
        ("1,0", {"ttl_ms": 1_000, "ttl_min_ms": 5_000, "ttl_max_ms": 10_000}, "0,2500", 5_000, 0),
        (
            "20000,0",
            {"ttl_ms": 1_000, "ttl_min_ms": 5_000, "ttl_max_ms": 10_000},
            "0,5000",
            10_000,
            0,
        ),
        ("1000,0", {"ttl_modifier": 3.0}, "0,1000", 3_000, 0),
        ("0,0", {"ttl_ms": -1}, "0,0", -1, 0),
    ],
)
def test_heart_beat_table(
    header: str | None, limits: dict[str, int], reply: str | None, ttl_ms: int, beat_ms: int
) -> None:
    agreement = agree(header, StompLimits(**limits))  # type: ignore[arg-type]
    assert (agreement.reply, agreement.ttl_ms, agreement.beat_ms) == (reply, ttl_ms, beat_ms)


@pytest.mark.parametrize(
    "header", ["", "1", "a,b", "0,0,0", "1.5,0", "0x1,0", "1,", ",1", "٣,0", "9" * 19 + ",0"]
)
def test_a_heart_beat_that_is_not_two_numbers_is_refused(header: str) -> None:
    with pytest.raises(RefusedError) as caught:
        agree(header, LIMITS)
    assert caught.value.refusal.code is Code.BAD_HEADER


def test_the_pulse_beats_and_notices_silence() -> None:
    pulse = Pulse(agree("1000,1000", LIMITS), 10.0)
    assert pulse.deadline() == 11.0
    assert not pulse.beat_due(10.9)
    assert pulse.beat_due(11.0)
    assert not pulse.beat_due(11.5)
    assert not pulse.silent(11.9)
    assert pulse.silent(12.0)
    pulse.heard(12.0)
    assert not pulse.silent(13.9)
    assert pulse.silent(14.0)


def test_a_pulse_without_limits_waits_for_ever() -> None:
    pulse = Pulse(agree("0,0", StompLimits(ttl_ms=-1)), 0.0)
    assert not pulse.silent(1e12)
    assert not pulse.beat_due(1e12)


# ---- MESSAGE frames


def writer(
    version: Version = Version.V1_2, *, with_ack: bool = False, apart: bool = False
) -> MessageFrames:
    return MessageFrames(
        version, "s:1" if version is Version.V1_0 else "s1", b"c1-1",
        with_ack=with_ack, address="q", convert=convert, apart=apart,
    )  # fmt: skip


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("with_ack", [False, True])
def test_a_run_of_messages(version: Version, with_ack: bool) -> None:
    data = writer(version, with_ack=with_ack).render(
        [message(b"one", 1), message(b"two\0", 2, count=1)], STOMP | ONE_DELIVERY
    )
    first, second = frames(data)
    expected = {
        "subscription": "s:1" if version is Version.V1_0 else "s1",
        "redelivered": "false",
        "message-id": "c1-1-0001",
        "destination": "q",
        "content-length": "3",
        "priority": "4",
        "persistent": "false",
        "expires": "0",
    }
    if with_ack and version is Version.V1_2:
        expected["ack"] = "c1-1-0001"
    assert first == ("MESSAGE", expected, b"one")
    assert second[1]["redelivered"] == "true"
    assert second[1]["message-id"] == "c1-1-0002"
    assert second[2] == b"two\0"


@pytest.mark.parametrize("flags", [MAYBE_SEEN, ONE_DELIVERY, 3 * ONE_DELIVERY])
def test_redelivered_is_per_message(flags: int) -> None:
    run = [message(b"", 1), message(b"", 2, flags=STOMP | flags), message(b"", 3)]
    found = [f[1]["redelivered"] for f in frames(writer().render(run, STOMP | flags))]
    assert found == ["false", "true", "false"]


@pytest.mark.parametrize("with_ack", [False, True])
def test_numbers_go_on_over_thousands(with_ack: bool) -> None:
    out = writer(with_ack=with_ack)
    data = b""
    for size in (1, 998, 1, 1, 2500, 3):
        data += out.render([message(b"%d" % n, n) for n in range(size)], STOMP)
    ids = [f[1]["message-id"] for f in frames(data)]
    assert [int(i.removeprefix("c1-1-")) for i in ids] == list(range(1, 3505))
    assert out.next_number == 3505
    if with_ack:
        assert [f[1]["ack"] for f in frames(data)] == ids


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("with_ack", [False, True])
@pytest.mark.parametrize("flags", [STOMP, STOMP | ONE_DELIVERY])
def test_sizes_are_those_of_each_frame(version: Version, *, with_ack: bool, flags: int) -> None:
    out = writer(version, with_ack=with_ack, apart=True)
    for count in (1, 998, 1, 5, 2500):
        run = [
            message(b"\0\n" * (number % 7), number, count=number % 3 if flags != STOMP else 0)
            for number in range(count)
        ]
        data, at = out.render(run, flags), 0
        assert len(out.sizes) == count
        for size in out.sizes:
            assert len(frames(data[at : at + size])) == 1
            at += size
        assert at == len(data)
    plain = writer(version, with_ack=with_ack)
    plain.render(run, flags)
    assert plain.sizes == []


def test_overhead_is_what_a_frame_has_beside_the_stored_form() -> None:
    for version in Version:
        for with_ack in (False, True):
            out = writer(version, with_ack=with_ack)
            one = message(b"body", 1)
            assert len(out.render([one], STOMP)) == out.overhead + len(one.body)


def test_messages_of_another_protocol_are_converted_with_their_expiry() -> None:
    seen: list[tuple[bytes, int, str, int]] = []

    def recording(body: bytes, flags: int, address: str, *, expires: int = 0) -> bytes:
        seen.append((body, flags, address, expires))
        return convert(body, flags, address)

    out = MessageFrames(Version.V1_2, "s", b"k", with_ack=False, address="q", convert=recording)
    late = Message(b"late", 2, EXPIRES)
    late.expires = 77
    run = [Message(b"raw", 1, 4), late, message(b"stomp", 3)]
    assert [f[2] for f in frames(out.render(run, EXPIRES | STOMP))] == [
        b"converted raw", b"converted late", b"stomp",
    ]  # fmt: skip
    assert seen == [(b"raw", 4, "q", 0), (b"late", EXPIRES, "q", 77)]


@pytest.mark.parametrize(
    ("headers", "in_1_1", "in_1_0"),
    [
        ([("a", "b:c")], b"a:b\\cc\n", b"a:b:c\n"),
        ([("a", "1\n2")], b"a:1\\n2\n", b""),
        ([("a", "1\r2")], b"", b""),
        ([("a", "\\")], b"a:\\\\\n", b"a:\\\n"),
        ([("a:b", "1")], b"a\\cb:1\n", b""),
        ([("a", "\\r")], b"a:\\\\r\n", b"a:\\r\n"),
        ([("a", "x\nadmin:1"), ("b", "2")], b"a:x\\nadmin\\c1\nb:2\n", b"b:2\n"),
    ],
)
def test_older_versions_get_their_own_escapes(
    headers: list[tuple[str, str]], in_1_1: bytes, in_1_0: bytes
) -> None:
    form = stomp_form.pack("q", b"body \\r \\c", headers=headers)
    start = b"destination:q\ncontent-length:10\npriority:4\npersistent:false\nexpires:0\n"
    assert rewritten(form, Version.V1_1) == start + in_1_1 + b"\nbody \\r \\c"
    assert rewritten(form, Version.V1_0) == start + in_1_0 + b"\nbody \\r \\c"
    for version, lines in ((Version.V1_1, in_1_1), (Version.V1_0, in_1_0)):
        data = writer(version).render([Message(form, 1, STOMP)], STOMP)
        assert start + lines + b"\nbody \\r \\c\0" in data
