"""Conversations about connecting, sending, receipts, time and ending, against a scripted broker."""

from __future__ import annotations

import pytest

from gateway.model import stomp_form
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal
from gateway.model.message import DURABLE, EXPIRES, GROUPED, STOMP, TEXT
from protocols.stomp.connection import State
from protocols.stomp.limits import StompLimits
from tests.protocols.scripted_broker import ScriptedAuthenticator, named
from tests.protocols.stomp.peer import Peer, frames, message

VERSIONS = ["1.0", "1.1", "1.2"]

# ---- connecting


@pytest.mark.parametrize(
    ("header", "headers"),
    [
        ("", {"session": "c1"}),
        ("accept-version:1.0\n", {"version": "1.0", "session": "c1"}),
        ("accept-version:1.1\n", {"version": "1.1", "session": "c1", "server": "Sluicegate"}),
        (
            "accept-version:1.0,1.1,1.3\n",
            {"version": "1.1", "session": "c1", "server": "Sluicegate"},
        ),
        ("request-id:1\n", {"session": "c1", "response-id": "1"}),
        ("heart-beat:0,0\n", {"session": "c1", "heart-beat": "0,30000"}),
    ],
)
def test_s1_s2_connected(header: str, headers: dict[str, str]) -> None:
    for command in ("CONNECT", "STOMP"):
        peer = Peer(None)
        out = peer.say(f"{command}\n{header}host:h\n\n\0".encode())
        assert frames(out) == [("CONNECTED", headers, b"")]
        assert peer.session.state is State.OPEN


def test_connected_can_name_another_server_none_and_the_durability() -> None:
    limits = StompLimits(server_name=None, durability="fsync")
    assert frames(Peer("1.2", limits=limits).greeting)[0][1] == {
        "version": "1.2",
        "session": "c1",
        "x-durability": "fsync",
    }


def test_no_control_character_of_a_request_comes_back_in_connected() -> None:
    peer = Peer(None)
    out = peer.say(b"CONNECT\nrequest-id:a\\nb\n\n\0")
    assert b"response-id:a\\nb\n" in out, "CONNECT is not unescaped"


@pytest.mark.parametrize("accepted", ["1.3", "9.9", ""])
def test_s1_no_common_version(accepted: str) -> None:
    peer = Peer(None)
    ((command, headers, body),) = frames(
        peer.say(f"CONNECT\naccept-version:{accepted}\n\n\0".encode())
    )
    assert command == "ERROR"
    assert headers["version"] == "1.0,1.1,1.2"
    assert headers["content-type"] == "text/plain"
    assert body == b"Supported protocol versions are v1.0, v1.1, v1.2.\n"
    assert peer.session.closing


def test_connect_again_is_answered_with_what_was_agreed() -> None:
    peer = Peer("1.1")
    assert peer.say(b"CONNECT\naccept-version:1.2\n\n\0") == peer.greeting
    assert peer.session.connection.version is not None
    assert peer.session.connection.version.text == "1.1"


@pytest.mark.parametrize("first", ["SEND", "SUBSCRIBE", "ACK", "DISCONNECT"])
def test_another_first_frame_is_told_the_rule(first: str) -> None:
    peer = Peer(None)
    ((command, headers, body),) = frames(peer.say(f"{first}\nreceipt:1\n\n\0".encode()))
    assert (command, headers["error-code"]) == ("ERROR", "bad-frame")
    assert f"must be CONNECT or STOMP, not {first}" in body.decode()
    assert peer.session.closing
    assert peer.broker.calls == []


def test_http_is_closed_without_a_word() -> None:
    peer = Peer(None)
    assert peer.say(b"POST / HTTP/1.1\r\n\r\nCONNECT\n\n\0SEND\ndestination:q\n\nx\0") == b""
    assert peer.session.closing
    assert peer.broker.calls == []


def test_a_bad_heart_beat_is_refused_at_connect() -> None:
    peer = Peer(None)
    ((_, headers, _),) = frames(peer.say(b"CONNECT\nheart-beat:a,b\n\n\0"))
    assert headers["error-code"] == "bad-header"
    assert peer.session.closing


# ---- login


def test_a_right_login_lets_frames_through_that_came_meanwhile() -> None:
    authenticator = ScriptedAuthenticator(is_open=False)
    peer = Peer(None, authenticator=authenticator)
    out = peer.say(
        b"CONNECT\naccept-version:1.2\nlogin:u\npasscode:p\n\n\0SEND\ndestination:q\n\nx\0"
    )
    assert out == b""
    assert peer.session.paused_reading
    assert peer.say(b"SEND\ndestination:q\n\ny\0") == b""
    assert peer.broker.calls == []
    assert authenticator.asked == [("u", "p")]
    assert authenticator.answer is not None
    authenticator.answer(True)
    assert peer.wakes
    assert frames(peer.hear())[0][0] == "CONNECTED"
    assert peer.bodies() == [b"x", b"y"]
    assert not peer.session.paused_reading
    assert peer.session.connection.principal.user == "u"


@pytest.mark.parametrize("connect", ["login:u\npasscode:wrong\n", "login:u\n"])
def test_a_wrong_login_drops_what_came_behind_it(connect: str) -> None:
    authenticator = ScriptedAuthenticator(is_open=False)
    peer = Peer(None, authenticator=authenticator)
    peer.say(f"CONNECT\n{connect}\n\0SEND\ndestination:q\n\nx\0".encode())
    assert authenticator.answer is not None
    authenticator.answer(False)
    ((command, headers, body),) = frames(peer.hear())
    assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    assert b"[u]" in body
    assert b"wrong" not in body
    assert peer.session.closing
    assert peer.broker.calls == []


def test_a_login_is_needed_when_there_are_users() -> None:
    authenticator = ScriptedAuthenticator(is_open=False)
    peer = Peer(None, authenticator=authenticator)
    ((_, headers, _),) = frames(peer.say(b"CONNECT\n\n\0"))
    assert headers["error-code"] == "not-authorized"
    assert authenticator.asked == []


def test_an_open_gateway_takes_any_login() -> None:
    assert frames(Peer("1.2", connect="login:x\npasscode:y\n").greeting)[0][0] == "CONNECTED"


@pytest.mark.parametrize("good", [True, False])
def test_where_anybody_may_come_a_login_is_checked_all_the_same(good: bool) -> None:
    authenticator = ScriptedAuthenticator(users=True)
    peer = Peer(None, authenticator=authenticator)
    assert peer.say(b"CONNECT\naccept-version:1.2\nlogin:ann\npasscode:p\n\n\0") == b""
    assert authenticator.asked == [("ann", "p")]
    assert authenticator.answer is not None
    authenticator.answer(good)
    ((command, _, _),) = frames(peer.hear())
    assert command == ("CONNECTED" if good else "ERROR")
    assert peer.session.connection.principal.account == ("ann" if good else "")


@pytest.mark.parametrize("login", ["", "login:\n", "login:\npasscode:p\n"])
def test_where_anybody_may_come_no_login_is_needed(login: str) -> None:
    authenticator = ScriptedAuthenticator(users=True)
    peer = Peer(None, authenticator=authenticator)
    ((command, _, _),) = frames(peer.say(f"CONNECT\naccept-version:1.2\n{login}\n\0".encode()))
    assert command == "CONNECTED"
    assert (authenticator.asked, peer.session.connection.principal.account) == ([], "")


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    authenticator = ScriptedAuthenticator(is_open=False)
    peer = Peer(None, authenticator=authenticator)
    peer.say(b"CONNECT\nlogin:u\npasscode:p\n\n\0")
    peer.session.connection_lost(peer.now)
    assert authenticator.answer is not None
    authenticator.answer(True)
    assert peer.hear() == b""
    assert peer.session.state is State.ENDED


def test_too_much_before_the_login_is_answered() -> None:
    authenticator = ScriptedAuthenticator(is_open=False)
    peer = Peer(None, authenticator=authenticator)
    out = peer.say(b"CONNECT\nlogin:u\npasscode:p\n\n\0" + b"SEND\ndestination:q\n\nx\0" * 4000)
    ((_, headers, _),) = frames(out)
    assert headers["error-code"] == "too-large"
    assert peer.session.closing


def test_the_password_is_in_no_text() -> None:
    from protocols.stomp.greeting import greet

    greeting = greet({"login": "u", "passcode": "s3cret"}, StompLimits(), "c1")
    assert greeting is not None
    assert greeting.password == "s3cret"
    assert "s3cret" not in repr(greeting)


# ---- SEND


def stored(peer: Peer) -> list[bytes]:
    return [body for call in peer.broker.of("send") for body in call[1]]


DEFAULT = "destination:q\ncontent-length:1\npriority:4\npersistent:true\nexpires:0\n"


@pytest.mark.parametrize(
    ("lines", "flags", "expires", "form"),
    [
        ("", DURABLE | TEXT | 4, 0, DEFAULT),
        ("content-length:1\n", DURABLE | 4, 0, DEFAULT),
        ("persistent:false\n", TEXT | 4, 0, DEFAULT.replace("true", "false")),
        (
            "persistent:TRUE\npriority:9\n",
            DURABLE | TEXT | 9,
            0,
            DEFAULT.replace("priority:4", "priority:9"),
        ),
        (
            "expires:5000\n",
            DURABLE | TEXT | EXPIRES | 4,
            5000,
            DEFAULT.replace("expires:0", "expires:5000"),
        ),
        ("expires:0\n", DURABLE | TEXT | 4, 0, DEFAULT),
        (
            "b:2\ntype:t\nreply-to:/queue/r\ncorrelation-id:c\na:1\ncontent-type:text/html\n",
            DURABLE | TEXT | 4,
            0,
            DEFAULT.replace("\ncontent-l", "\ncontent-type:text/html\ncontent-l")
            + "correlation-id:c\nreply-to:/queue/r\ntype:t\nb:2\na:1\n",
        ),
        (
            "message-id:no\nsubscription:no\nredelivered:true\nack:no\nreceipt:7\nkept:1\n",
            DURABLE | TEXT | 4,
            0,
            DEFAULT + "kept:1\n",
        ),
        ("JMSXGroupID:g\n", DURABLE | TEXT | GROUPED | 4, 0, DEFAULT + "JMSXGroupID:g\n"),
        ("a:b\\cc:d\n", DURABLE | TEXT | 4, 0, DEFAULT + "a:b\\cc\\cd\n"),
    ],
)
def test_send_headers(lines: str, flags: int, expires: int, form: str) -> None:
    peer = Peer()
    frame = f"SEND\ndestination:q\n{lines}\nx\0".encode()
    peer.say(frame + frame)
    ((address, bodies, got_flags, got_expires),) = peer.broker.of("send")
    assert (address, got_flags, got_expires) == ("q", flags | STOMP, expires)
    assert bodies == [f"{form}timestamp:{peer.broker.clock_ms}\n\nx".encode()] * 2


def sent_in(version: str, *frames_each_turn: bytes) -> list[dict[str, str]]:
    """Return the stored headers of what is sent in turns that are a ms apart."""
    peer = Peer(version)
    for frames_of_turn in frames_each_turn:
        peer.say(frames_of_turn)
        peer.broker.clock_ms += 1
    return [dict(stomp_form.unpack(form)[0]) for form in stored(peer)]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("length", ["", "content-length:1\n"])
def test_a_message_says_when_it_was_sent(version: str, length: str) -> None:
    frame = f"SEND\ndestination:q\n{length}\nx\0".encode()
    found = sent_in(version, frame, frame * 2, frame)
    assert [headers["timestamp"] for headers in found] == [
        "1000000",
        "1000001",
        "1000001",
        "1000002",
    ]
    assert {headers["expires"] for headers in found} == {"0"}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_time_that_a_sender_says_is_kept(version: str) -> None:
    dated = b"SEND\ndestination:q\ntimestamp:77\n\nx\0"
    undated = b"SEND\ndestination:q\n\nx\0"
    found = sent_in(version, dated + undated, undated + dated)
    assert [headers["timestamp"] for headers in found] == ["77", "1000000", "1000001", "77"]


def test_a_transaction_stamps_each_send() -> None:
    peer = Peer()
    frame = b"SEND\ndestination:q\ntransaction:t\n\nx\0"
    peer.say(b"BEGIN\ntransaction:t\n\n\0" + frame)
    peer.broker.clock_ms += 5
    peer.say(frame)
    peer.say(b"COMMIT\ntransaction:t\n\n\0")
    ((sends,),) = peer.broker.of("commit")
    sent = [send[1] for send in sends]
    assert [dict(stomp_form.unpack(form)[0])["timestamp"] for form in sent] == [
        "1000000",
        "1000005",
    ]


def test_the_default_of_persistent_is_a_setting() -> None:
    peer = Peer(limits=StompLimits(default_persistent=False))
    peer.say(b"SEND\ndestination:q\n\nx\0")
    assert peer.broker.of("send")[0][2] == STOMP | TEXT | 4


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("lines", "code", "part"),
    [
        ("priority:10\n", "bad-value", "priority '10'"),
        ("priority:-1\n", "bad-value", "priority"),
        ("priority:1e3\n", "bad-value", "priority"),
        ("priority:\n", "bad-value", "priority"),
        ("persistent:maybe\n", "bad-value", "persistent 'maybe'"),
        ("expires:soon\n", "bad-value", "expires 'soon'"),
        ("expires:-1\n", "bad-value", "expires"),
        ("expires:9999999999999999999\n", "bad-value", "expires"),
        ("destination-type:QUEUE\n", "bad-value", "destination-type"),
        ("AMQ_SCHEDULED_DELAY:soon\n", "bad-value", "AMQ_SCHEDULED_DELAY 'soon' is no delay"),
        ("AMQ_SCHEDULED_DELAY:1e3\n", "bad-value", "AMQ_SCHEDULED_DELAY '1e3'"),
        ("AMQ_SCHEDULED_TIME:-5\n", "bad-value", "AMQ_SCHEDULED_TIME '-5' is no time"),
        ("AMQ_SCHEDULED_TIME:\n", "bad-value", "AMQ_SCHEDULED_TIME"),
        ("transaction:nobody\n", "not-found", "nobody"),
    ],
)
def test_refused_sends(version: str, lines: str, code: str, part: str) -> None:
    peer = Peer(version)
    send = f"SEND\ndestination:q\nreceipt:r1\n{lines}\nx\0SEND\ndestination:q\n\nnext\0"
    ((command, headers, body),) = frames(peer.say(send.encode()))
    assert (command, headers["error-code"], headers["receipt-id"]) == ("ERROR", code, "r1")
    assert part in body.decode()
    assert peer.session.closing is (version == "1.2")
    assert peer.bodies() == ([] if version == "1.2" else [b"next"])


def test_a_delay_counts_from_each_message() -> None:
    peer = Peer()
    send = b"SEND\ndestination:q\nAMQ_SCHEDULED_DELAY:50\n\nx\0"
    start = peer.broker.now_ms()
    peer.say(send)
    peer.broker.clock_ms += 7
    peer.say(send + send)
    assert [due[0] for due in peer.broker.of("due")] == [start + 50, start + 57, start + 57]
    stored = peer.broker.of("send")[0][1][0]
    assert f"AMQ_SCHEDULED_TIME:{start + 50}\n".encode() in stored
    assert b"AMQ_SCHEDULED_DELAY" not in stored


@pytest.mark.parametrize(
    ("lines", "due"),
    [
        ("AMQ_SCHEDULED_TIME:9000000000000\nAMQ_SCHEDULED_DELAY:50\n", 9_000_000_000_000),
        ("AMQ_SCHEDULED_TIME:9000000000000\n", 9_000_000_000_000),
        ("AMQ_SCHEDULED_DELAY:0\n", None),
        ("AMQ_SCHEDULED_DELAY:-3\n", None),
        ("AMQ_SCHEDULED_TIME:0\n", None),
    ],
)
def test_a_time_counts_before_a_delay_and_nothing_is_at_once(lines: str, due: int | None) -> None:
    peer = Peer()
    send = f"SEND\ndestination:q\n{lines}\nx\0".encode()
    peer.say(send + send)
    assert {told[0] for told in peer.broker.of("due")} == (set() if due is None else {due})
    assert peer.bodies() == [b"x", b"x"]


def test_a_send_without_destination_is_refused() -> None:
    ((_, headers, _),) = frames(Peer().say(b"SEND\nreceipt:1\n\nx\0"))
    assert (headers["error-code"], headers["receipt-id"]) == ("bad-header", "1")


def test_what_the_broker_refuses_is_told_in_its_words() -> None:
    peer = Peer("1.1")
    peer.broker.refuse_open = Refusal(code=Code.NOT_FOUND, text="Address 'q' does not exist.")
    for _ in range(2):
        ((_, headers, body),) = frames(peer.say(b"SEND\ndestination:q\nreceipt:1\n\nx\0"))
        assert (headers["error-code"], headers["receipt-id"]) == ("not-found", "1")
        assert body == b"Address 'q' does not exist.\n"
    peer.broker.refuse_open = None
    assert peer.say(b"SEND\ndestination:q\n\nx\0") == b""
    assert peer.bodies() == [b"x"]


@pytest.mark.parametrize(
    ("line", "destination", "routing", "kept"),
    [
        ("/queue/a", Destination("a"), RoutingType.ANYCAST, b"\ndestination-type:ANYCAST\n"),
        ("/topic/a", Destination("a"), RoutingType.MULTICAST, b"\ndestination-type:MULTICAST\n"),
        ("a::b", Destination("a", "b"), None, b"persistent:true\nexpires:0\ntimestamp"),
    ],
)
def test_s22_prefixes_route_and_stay_in_the_destination(
    line: str, destination: Destination, routing: RoutingType | None, kept: bytes
) -> None:
    peer = Peer()
    peer.say(f"SEND\ndestination:{line}\n\nx\0".encode())
    assert peer.broker.of("open producer") == [(named(destination), routing)]
    (form,) = stored(peer)
    assert dict(stomp_form.unpack(form)[0])["destination"] == line
    assert kept in form


def test_an_explicit_destination_type_is_stored_once() -> None:
    peer = Peer()
    peer.say(b"SEND\ndestination:/queue/a\ndestination-type:ANYCAST\n\nx\0")
    assert stored(peer)[0].count(b"destination-type:ANYCAST\n") == 1


def test_s32_runs_keep_their_order_over_destinations() -> None:
    peer = Peer()
    names = "aabbbacca"
    peer.say(b"".join(f"SEND\ndestination:{n}\n\n{i}\0".encode() for i, n in enumerate(names)))
    sent = [(call[0], len(call[1])) for call in peer.broker.of("send")]  # type: ignore[arg-type]
    assert sent == [("a", 2), ("b", 3), ("a", 1), ("c", 2), ("a", 1)]
    assert peer.bodies() == [b"%d" % n for n in range(9)]


def test_destinations_kept_open_are_bounded() -> None:
    peer = Peer(limits=StompLimits(destinations_max=3))
    for n in range(7):
        peer.say(f"SEND\ndestination:q{n}\n\nx\0".encode())
    assert len(peer.broker.of("open producer")) == 7
    assert len(peer.broker.of("close producer")) == 6
    peer.say(b"SEND\ndestination:q0\n\nagain\0")
    assert not peer.broker.producer("q0").closed
    assert peer.bodies()[-1] == b"again"


def test_a_run_is_sent_before_its_sender_is_closed() -> None:
    peer = Peer(limits=StompLimits(destinations_max=1))
    peer.say(b"SEND\ndestination:a\n\n1\0SEND\ndestination:a\n\n2\0SEND\ndestination:b\n\n3\0")
    assert [call[0] for call in peer.broker.calls] == [
        "open producer", "send", "close producer", "open producer", "send",
    ]  # fmt: skip


# ---- receipts and the disk


def test_s3_receipts_wait_for_the_disk_in_frame_order() -> None:
    peer = Peer()
    out = peer.say(
        b"SEND\ndestination:q\nreceipt:1\n\nx\0"
        b"SEND\ndestination:q\nreceipt:2\npersistent:false\n\nx\0"
        b"BEGIN\ntransaction:t\nreceipt:3\n\n\0"
    )
    assert out == b""
    assert peer.sync(0) == b""
    peer.broker.ticket = 2
    assert peer.say(b"SEND\ndestination:q\nreceipt:4\n\nx\0") == b""
    assert [f[1]["receipt-id"] for f in frames(peer.sync(1))] == ["1", "2", "3"]
    assert [f[1]["receipt-id"] for f in frames(peer.sync(2))] == ["4"]
    assert peer.broker.listeners == []


def test_what_needs_no_disk_is_confirmed_at_once() -> None:
    peer = Peer()
    out = peer.say(b"SEND\ndestination:q\nreceipt:1\npersistent:false\n\nx\0")
    assert frames(out) == [("RECEIPT", {"receipt-id": "1"}, b"")]
    assert peer.broker.listeners == []


def test_an_error_stands_behind_earlier_receipts() -> None:
    peer = Peer()
    out = peer.say(
        b"SEND\ndestination:q\nreceipt:1\n\nx\0SEND\ndestination:q\nreceipt:2\npriority:x\n\nx\0"
    )
    assert out == b""
    assert not peer.session.closing
    assert [f[0] for f in frames(peer.sync())] == ["RECEIPT", "ERROR"]
    assert peer.session.closing


def test_a_failed_store_confirms_nothing_and_ends() -> None:
    peer = Peer()
    peer.say(b"SEND\ndestination:q\nreceipt:1\n\nx\0")
    listener = peer.broker.listeners[0]
    listener.store_failed(Refusal(code=Code.STORE_FAILED, text="The disk failed."))
    ((command, headers, _),) = frames(peer.hear())
    assert (command, headers["error-code"]) == ("ERROR", "store-failed")
    assert "receipt-id" not in headers
    assert peer.session.closing
    listener.durable_up_to(99)
    assert peer.hear() == b""


@pytest.mark.parametrize("with_receipt", [True, False])
def test_disconnect_is_confirmed_when_all_sends_are_durable(with_receipt: bool) -> None:
    peer = Peer()
    receipt = b"receipt:bye\n" if with_receipt else b""
    peer.say(b"SEND\ndestination:q\n\nx\0")
    out = peer.say(b"DISCONNECT\n" + receipt + b"\n\0SEND\ndestination:q\n\nignored\0")
    assert out == b""
    assert not peer.session.closing
    assert peer.bodies() == [b"x"]
    out = peer.sync()
    assert [f[1]["receipt-id"] for f in frames(out)] == (["bye"] if with_receipt else [])
    assert peer.session.closing


def test_disconnect_without_sends_is_answered_at_once() -> None:
    peer = Peer()
    assert peer.say(b"DISCONNECT\nreceipt:bye\n\n\0") == b"RECEIPT\nreceipt-id:bye\n\n\0\n"
    assert peer.session.closing


@pytest.mark.parametrize("receipt", [b"a\\cb", b"with space", "é".encode(), b"x" * 5000])
def test_receipt_ids_come_back_as_they_were(receipt: bytes) -> None:
    peer = Peer()
    frame = b"SEND\ndestination:q\npersistent:false\nreceipt:" + receipt + b"\n\nx\0"
    assert peer.say(frame * 2) == (b"RECEIPT\nreceipt-id:" + receipt + b"\n\n\0\n") * 2


# ---- errors by version


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_cannot_be_read_ends_every_version(version: str) -> None:
    peer = Peer(version)
    ((command, headers, _),) = frames(
        peer.say(b"NONSENSE\nreceipt:5\n\n\0SEND\ndestination:q\n\nx\0")
    )
    assert (command, headers["error-code"], headers["receipt-id"]) == ("ERROR", "bad-frame", "5")
    assert peer.session.closing
    assert peer.broker.calls == []


@pytest.mark.parametrize("version", VERSIONS)
def test_error_frames_are_written_by_the_rules_of_the_version(version: str) -> None:
    peer = Peer(version)
    peer.broker.refuse_open = Refusal(code=Code.NOT_FOUND, text="a:b\\c\nd")
    out = peer.say(b"SEND\ndestination:q\n\nx\0")
    written = b"message:a:b\\c d\n" if version == "1.0" else b"message:a\\cb\\\\c d\n"
    assert written in out


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_disk_ends_every_version(version: str) -> None:
    peer = Peer(version)
    peer.say(b"SEND\ndestination:q\n\nx\0")
    peer.broker.refusal = Refusal(code=Code.DISK_FULL, text="The disk is full.", transient=True)
    peer.broker.producer("q").capacity = 0
    out = peer.say(b"SEND\ndestination:q\nreceipt:1\n\ny\0SEND\ndestination:q\n\nz\0")
    ((command, headers, _),) = frames(out + peer.sync())
    assert (command, headers["error-code"], headers["receipt-id"]) == ("ERROR", "disk-full", "1")
    assert peer.session.closing


# ---- time


def test_login_must_be_quick_however_the_bytes_drip() -> None:
    peer = Peer(None)
    session = peer.session
    assert session.tick(0.0) == 10.0
    for second in range(1, 10):
        session.receive_data(b"C"[:1] if second == 1 else b"O" if second == 2 else b"", second)
    assert session.tick(9.9) is not None
    assert session.tick(10.0) is None
    ((_, headers, _),) = frames(peer.hear())
    assert headers["error-code"] == "not-authorized"
    assert session.closing


def test_s28_silence_ends_the_connection() -> None:
    for version, connect in (
        ("1.0", ""),
        ("1.1", "heart-beat:0,0\n"),
        ("1.2", "heart-beat:30000,0\n"),
    ):
        peer = Peer(version, connect=connect)
        assert peer.session.retick
        assert peer.session.tick(peer.now) == peer.now + 30.0
        assert peer.session.tick(peer.now + 59.9) == pytest.approx(peer.now + 60)
        assert not peer.session.closing
        assert peer.session.tick(peer.now + 60) is None
        ((command, headers, body),) = frames(peer.hear())
        assert (command, headers["error-code"]) == ("ERROR", "bad-frame")
        assert b"60000 ms" in body
        assert peer.session.closing


def test_any_byte_is_life() -> None:
    peer = Peer("1.1", connect="heart-beat:1000,0\n")
    for _ in range(50):
        peer.now += 1.9
        assert peer.session.tick(peer.now) is not None
        assert peer.say(b"\n") == b""
    assert not peer.session.closing


def test_beats_go_out_on_time_and_not_into_a_full_pipe() -> None:
    peer = Peer("1.2", connect="heart-beat:0,800\n")
    start = peer.now
    assert peer.session.tick(start) == pytest.approx(start + 0.8)
    assert peer.hear() == b""
    assert peer.session.tick(start + 0.8) == pytest.approx(start + 1.6)
    assert peer.hear() == b"\n"
    peer.session.write_room = False
    peer.session.tick(start + 1.6)
    assert peer.hear() == b""
    peer.session.write_room = True
    peer.session.tick(start + 2.4)
    assert peer.hear() == b"\n"


def test_t16_a_frame_must_come_to_an_end() -> None:
    peer = Peer(limits=StompLimits(ttl_ms=-1))
    start = peer.now
    peer.say(b"SEND\ndestination:q\n\nsl")
    for second in range(1, 30):
        peer.now = start + second
        peer.say(b"o")
        assert peer.session.tick(peer.now) is not None
    assert peer.session.tick(start + 31) is None
    ((_, headers, body),) = frames(peer.hear())
    assert headers["error-code"] == "bad-frame"
    assert b"not complete" in body


def test_t16_a_large_frame_has_time_for_its_size() -> None:
    peer = Peer(limits=StompLimits(ttl_ms=-1))
    start = peer.now
    peer.say(b"SEND\ndestination:q\ncontent-length:1000000\n\n" + b"x" * 819_200)
    assert peer.session.tick(start + 100) is not None
    peer.now = start + 110
    peer.say(b"x" * (1_000_000 - 819_200) + b"\0")
    assert len(peer.bodies()[0]) == 1_000_000
    assert peer.session.tick(start + 1000) is not None


def test_frames_that_complete_start_the_time_of_the_next() -> None:
    peer = Peer(limits=StompLimits(ttl_ms=-1))
    for _ in range(40):
        peer.now += 20
        peer.say(b"x\0SEND\ndestination:q\n\n" if peer.broker.calls else b"SEND\ndestination:q\n\n")
        assert peer.session.tick(peer.now) is not None
        peer.broker.note("went on")
    assert not peer.session.closing


# ---- ending


def test_stop_says_so_behind_what_is_unconfirmed() -> None:
    peer = Peer("1.1")
    peer.say(b"SEND\ndestination:q\nreceipt:1\n\nx\0")
    peer.session.stop(peer.now)
    assert peer.hear() == b""
    receipt, error = frames(peer.sync())
    assert receipt[0] == "RECEIPT"
    assert (error[0], error[1]["error-code"]) == ("ERROR", "shutting-down")
    assert peer.session.closing
    peer.session.stop(peer.now)
    assert peer.hear() == b""


def test_a_lost_connection_gives_everything_back_and_is_quiet() -> None:
    peer = Peer()
    peer.say(b"SUBSCRIBE\nid:0\ndestination:q\nack:client\n\n\0BEGIN\ntransaction:t\n\n\0")
    peer.offer("q", message(b"1", 1), message(b"2", 2))
    peer.say(b"ACK\nid:c1-1-0001\ntransaction:t\n\n\0SEND\ndestination:q\nreceipt:r\n\nx\0")
    peer.session.connection_lost(peer.now)
    assert peer.broker.calls[-5:] == [
        ("rollback",),
        ("release failed", "q", [1]),
        ("release failed", "q", [2]),
        ("close subscription", "q"),
        ("close producer", "q"),
    ]
    assert peer.sync() == b""
    peer.session.connection_lost(peer.now)
    assert peer.say(b"SEND\ndestination:q\n\nx\0") == b""


def test_an_end_of_input_still_confirms() -> None:
    peer = Peer()
    peer.say(b"SEND\ndestination:q\nreceipt:1\n\nx\0")
    peer.session.receive_eof(peer.now)
    assert peer.hear() == b""
    assert [f[0] for f in frames(peer.sync())] == ["RECEIPT"]
    assert peer.session.closing


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_frame_ends_in_nul_and_lf(version: str) -> None:
    """CONNECTED, RECEIPT, each MESSAGE of a run and over a thousand of them, ERROR."""
    peer = Peer(version)
    assert peer.greeting.endswith(b"\n\n\0\n")
    out = peer.say(b"SUBSCRIBE\nid:0\ndestination:q\nreceipt:1\n\n\0")
    assert out == b"RECEIPT\nreceipt-id:1\n\n\0\n"
    sends = [b"SEND\ndestination:q\nreceipt:%d\n\nx\0" % n for n in range(3)]
    out = peer.say(b"".join(sends))
    assert out + peer.sync() == b"".join(b"RECEIPT\nreceipt-id:%d\n\n\0\n" % n for n in range(3))
    data = peer.offer("q", *[message(b"%d" % n, n) for n in range(1, 1500)])
    assert data.count(b"\0\nMESSAGE\n") == 1498
    assert data.endswith(b"1499\0\n")
    assert data.count(b"\0") == 1499
    out = peer.say(b"BEGIN\n\n\0")
    assert out.startswith(b"ERROR\n")
    assert out.endswith(b"\n\0\n")
    assert out.count(b"\0") == 1


def test_who_speaks_no_version_of_ours_hears_of_it_in_a_frame_that_ends_in_nul_and_lf() -> None:
    peer = Peer(None)
    out = peer.say(b"CONNECT\naccept-version:2.0\nhost:x\n\n\0")
    assert out.startswith(b"ERROR\n")
    assert out.endswith(b"\n\0\n")


# ---- turns


def test_the_others_have_a_turn_between_runs_to_different_addresses() -> None:
    peer = Peer("1.2")
    sends = b"".join(b"SEND\ndestination:%b\n\nx\0" % name for name in (b"a", b"a", b"b", b"c"))
    peer.session.spent = lambda: True
    peer.session.receive_data(sends, peer.now)
    seen = []
    while peer.session.behind:
        seen.append([call[1] for call in peer.broker.calls if call[0] == "send"])
        peer.session.go_on(peer.now)
    assert seen == [["a"], ["a", "b"]]
    assert [call[1] for call in peer.broker.calls if call[0] == "send"] == ["a", "b", "c"]


def test_what_is_acted_on_whole_waits_for_no_turn() -> None:
    peer = Peer("1.2")
    peer.session.spent = lambda: True
    peer.session.receive_data(b"SEND\ndestination:a\n\nx\0" * 100, peer.now)
    assert not peer.session.behind


def test_a_login_that_is_being_checked_is_waited_for_however_long_that_takes() -> None:
    peer = Peer(None, authenticator=ScriptedAuthenticator(is_open=False))
    peer.say(b"CONNECT\nlogin:a\npasscode:b\nhost:h\n\n\0")
    assert peer.session.state is State.LOGIN
    late = peer.now + 10 * peer.limits.login_seconds
    assert peer.session.tick(late) == late + 1
    assert peer.session.state is State.LOGIN
    answer = peer.authenticator.answer
    assert answer is not None
    answer(True)
    assert [frame[0] for frame in frames(peer.hear())] == ["CONNECTED"]
