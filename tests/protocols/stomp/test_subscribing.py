"""Conversations about SUBSCRIBE, MESSAGE, ACK, NACK, windows and transactions."""

from __future__ import annotations

import pytest

from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal
from gateway.model.message import Message
from protocols.stomp.limits import StompLimits
from tests.protocols.scripted_broker import FULL
from tests.protocols.stomp.peer import Peer, frames, message

VERSIONS = ["1.0", "1.1", "1.2"]


def subscribed(ack: str = "client", *lines: str, version: str = "1.2", **limits: int) -> Peer:
    peer = Peer(version, limits=StompLimits(**limits))  # type: ignore[arg-type]
    extra = "".join(line + "\n" for line in lines)
    out = peer.say(f"SUBSCRIBE\nid:s\ndestination:q\nack:{ack}\n{extra}\n\0".encode())
    assert out == b""
    return peer


def run(*seqs: int, size: int = 10) -> list[Message]:
    return [message(b"x" * size, seq) for seq in seqs]


def delivered(data: bytes) -> list[str]:
    """Return the message ids of the MESSAGE frames in `data`."""
    found = frames(data)
    assert all(command == "MESSAGE" for command, _, _ in found)
    return [headers["message-id"] for _, headers, _ in found]


def ack(peer: Peer, number: int, *lines: str, command: str = "ACK") -> bytes:
    name = f"c1-1-{number:04d}"
    version = peer.session.connection.version
    assert version is not None
    named = {
        "1.0": f"message-id:{name}",
        "1.1": f"subscription:s\nmessage-id:{name}",
        "1.2": f"id:{name}",
    }[version.text]
    extra = "".join(line + "\n" for line in lines)
    return peer.say(f"{command}\n{named}\n{extra}\n\0".encode())


# ---- SUBSCRIBE


@pytest.mark.parametrize(
    ("lines", "call"),
    [
        ("destination:q\n", ("q", None, {})),
        ("destination:/queue/q\n", ("q", RoutingType.ANYCAST, {})),
        ("destination:/topic/q\n", ("q", RoutingType.MULTICAST, {})),
        ("destination:a::q\n", ("a::q", None, {})),
        (
            "destination:q\nsubscription-type:MULTICAST\n",
            ("q", RoutingType.MULTICAST, {}),
        ),
        (
            "destination:q\ndestination-type:ANYCAST\n",
            ("q", RoutingType.ANYCAST, {}),
        ),
        (
            "destination:q\ndurable-subscription-name:n\n",
            ("q", RoutingType.MULTICAST, {"shared": True, "durable": "me.n"}),
        ),
        (
            "destination:q\ndurable-subscriber-name:n\nactivemq.subscriptionName:x\n",
            ("q", RoutingType.MULTICAST, {"shared": True, "durable": "me.n"}),
        ),
        (
            "destination:/topic/q\nactivemq.subscriptionName:n\nno-local:false\n",
            ("q", RoutingType.MULTICAST, {"shared": True, "durable": "me.n"}),
        ),
    ],
)
def test_s18_s22_what_is_subscribed(lines: str, call: tuple[object, ...]) -> None:
    peer = Peer("1.1", connect="client-id:me\n")
    assert peer.say(f"SUBSCRIBE\nid:0\n{lines}\n\0".encode()) == b""
    assert peer.broker.of("subscribe") == [call]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("lines", "code", "part"),
    [
        ("id:0\n", "bad-header", "destination"),
        ("id:0\ndestination:q\nselector: \n", "bad-value", "selector is empty"),
        ("id:0\ndestination:q\nno-local:yes\n", "bad-value", "no-local"),
        ("id:0\ndestination:q\nactivemq.noLocal:1\n", "bad-value", "activemq.noLocal"),
        ("id:0\ndestination:q\nbrowser:1\n", "bad-value", "browser"),
        ("id:0\ndestination:/topic/q\nbrowser:true\n", "routing-mismatch", "address::queue"),
        ("id:0\ndestination:q\nsubscription-type:TOPIC\n", "bad-value", "subscription-type"),
        (
            "id:0\ndestination:/topic/q\nsubscription-type:ANYCAST\n",
            "routing-mismatch",
            "MULTICAST",
        ),
        ("id:0\ndestination:q\ndurable-subscription-name:n\n", "bad-header", "client-id"),
        ("id:0\ndestination:q\ndurable-subscription-name:\n", "bad-value", "empty"),
        ("id:0\ndestination:q\nconsumer-window-size:x\n", "bad-value", "consumer-window-size"),
        ("id:0\ndestination:q\nactivemq.prefetchSize:1e3\n", "bad-value", "prefetchSize"),
        ("id:0\ndestination:q\nprefetch-count:0\n", "bad-value", "prefetch-count"),
        ("id:0\ndestination:$x\n", "bad-name", "$"),
    ],
)
def test_s25_refused_subscriptions_name_the_header_and_carry_the_receipt(
    version: str, lines: str, code: str, part: str
) -> None:
    peer = Peer(version)
    out = peer.say(f"SUBSCRIBE\nreceipt:r\n{lines}\n\0".encode())
    ((command, headers, body),) = frames(out)
    assert (command, headers["error-code"], headers["receipt-id"]) == ("ERROR", code, "r")
    assert part in body.decode()
    assert peer.broker.of("subscribe") == []
    assert peer.session.closing is (version == "1.2")


def test_a_durable_subscription_on_an_anycast_destination_contradicts_itself() -> None:
    peer = Peer("1.1", connect="client-id:me\n")
    out = peer.say(
        b"SUBSCRIBE\nid:0\ndestination:/queue/q\ndurable-subscription-name:n\nreceipt:r\n\n\0"
    )
    ((_, headers, _),) = frames(out)
    assert (headers["error-code"], headers["receipt-id"]) == ("routing-mismatch", "r")


def test_s23_the_brokers_refusal_is_passed_on_and_leaves_no_subscription() -> None:
    peer = Peer("1.1")
    peer.broker.refuse_subscribe = Refusal(code=Code.ROUTING_MISMATCH, text="Not a topic.")
    subscribe = b"SUBSCRIBE\nid:0\ndestination:/topic/q\nreceipt:r\n\n\0"
    ((_, headers, _),) = frames(peer.say(subscribe))
    assert (headers["error-code"], headers["receipt-id"]) == ("routing-mismatch", "r")
    peer.broker.refuse_subscribe = None
    assert frames(peer.say(subscribe))[0][0] == "RECEIPT"


def test_the_same_id_twice_and_no_id() -> None:
    peer = subscribed(version="1.1")
    again = peer.say(b"SUBSCRIBE\nid:s\ndestination:other\n\n\0")
    assert frames(again)[0][1]["error-code"] == "already-exists"
    missing = peer.say(b"SUBSCRIBE\ndestination:other\n\n\0")
    assert frames(missing)[0][1]["error-code"] == "bad-header"
    oldest = Peer("1.0")
    oldest.say(b"SUBSCRIBE\ndestination:q\n\n\0")
    ((_, headers, _),) = frames(oldest.offer("q", *run(1)))
    assert headers["subscription"] == "subscription/q"
    assert oldest.say(b"UNSUBSCRIBE\ndestination:q\n\n\0") == b""
    assert oldest.broker.of("close subscription") == [("q",)]


def test_subscriptions_are_bounded() -> None:
    peer = Peer("1.1", limits=StompLimits(subscriptions_max=2))
    out = [peer.say(f"SUBSCRIBE\nid:{n}\ndestination:q{n}\n\n\0".encode()) for n in range(3)]
    assert out[:2] == [b"", b""]
    assert frames(out[2])[0][1]["error-code"] == "too-many"


def test_the_receipt_of_subscribe_comes_before_the_first_message() -> None:
    peer = Peer()
    peer.say(
        b"SEND\ndestination:q\nreceipt:1\n\nx\0SUBSCRIBE\nid:s\ndestination:q\nreceipt:2\n\n\0"
    )
    assert peer.offer("q", *run(1)) == b""
    commands = [f[0] for f in frames(peer.sync())]
    assert commands == ["RECEIPT", "RECEIPT", "MESSAGE"]


def test_s26_every_subscription_has_its_own_ids() -> None:
    peer = Peer()
    peer.say(b"SUBSCRIBE\nid:a\ndestination:x\n\n\0SUBSCRIBE\nid:b\ndestination:y\n\n\0")
    first = frames(peer.offer("x", *run(1)))[0][1]
    second = frames(peer.offer("y", *run(1)))[0][1]
    assert (first["subscription"], second["subscription"]) == ("a", "b")
    assert first["message-id"] != second["message-id"]


# ---- auto


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lines", [(), ("consumer-window-size:0",), ("activemq.prefetchSize:1",)])
def test_s11_auto_is_settled_when_written_whatever_the_window(
    version: str, lines: tuple[str, ...]
) -> None:
    peer = subscribed("auto", *lines, version=version)
    out = peer.offer("q", *run(1, 2, 3))
    assert len(delivered(out)) == 3
    assert peer.broker.of("acknowledge") == [("q", [1, 2, 3])]
    assert "ack" not in frames(out)[0][1]
    peer.say(b"DISCONNECT\n\n\0")
    assert peer.broker.of("release failed") == []


def test_an_ack_in_auto_mode_is_refused() -> None:
    peer = subscribed("auto")
    peer.offer("q", *run(1))
    assert frames(ack(peer, 1))[0][1]["error-code"] == "not-found"


def test_a_full_output_stops_the_queue_and_goes_on_when_it_is_written() -> None:
    peer = subscribed("auto", output_bytes_max=1000)
    peer.broker.put("q", run(*range(1, 101), size=100))
    peer.broker.turn()
    written = 0
    biggest = 0
    while True:
        data = peer.session.data_to_send()
        if not data:
            break
        biggest = max(biggest, len(data))
        written += len(frames(data))
        peer.broker.turn()
    assert written == 100
    assert biggest < 3000


def test_transport_pressure_stops_the_queue() -> None:
    peer = subscribed("auto")
    peer.session.write_room = False
    assert peer.offer("q", *run(1, 2)) == b""
    peer.session.write_room = True
    peer.session.write_resumed()
    assert len(delivered(peer.hear())) == 2


# ---- client and client-individual


@pytest.mark.parametrize("version", VERSIONS)
def test_s9_client_acks_are_cumulative(version: str) -> None:
    peer = subscribed("client", "consumer-window-size:-1", version=version)
    assert len(delivered(peer.offer("q", *run(*range(1, 51))))) == 50
    assert ack(peer, 49) == b""
    assert peer.broker.of("acknowledge") == [("q", list(range(1, 50)))]
    extra = b"id:s\n"
    assert peer.say(b"UNSUBSCRIBE\n" + extra + b"\n\0") == b""
    assert peer.broker.of("release") == [("q", [50])]
    assert peer.broker.of("close subscription") == [("q",)]


@pytest.mark.parametrize("version", VERSIONS)
def test_s10_individual_acks_settle_one(version: str) -> None:
    peer = subscribed("client-individual", "consumer-window-size:-1", version=version)
    peer.offer("q", *run(*range(1, 51)))
    for number in range(2, 51, 2):
        assert ack(peer, number) == b""
    settled = [seq for _, seqs in peer.broker.of("acknowledge") for seq in seqs]
    assert settled == list(range(2, 51, 2))
    peer.session.connection_lost(peer.now)
    assert peer.broker.of("release failed") == [("q", list(range(1, 51, 2)))]


def test_a_run_of_acks_is_settled_in_one_call() -> None:
    peer = subscribed("client-individual", "consumer-window-size:-1")
    peer.offer("q", *run(*range(1, 6)))
    peer.say(b"".join(b"ACK\nid:c1-1-%04d\n\n\0" % n for n in (5, 1, 3)))
    assert peer.broker.of("acknowledge") == [("q", [5, 1, 3])]


def test_runs_of_acks_are_split_by_subscription() -> None:
    peer = subscribed("client-individual")
    peer.say(b"SUBSCRIBE\nid:t\ndestination:r\nack:client\n\n\0")
    peer.offer("q", *run(1))
    peer.offer("q", *run(2))
    peer.offer("r", *run(1))
    peer.say(b"ACK\nid:c1-1-1\n\n\0ACK\nid:c1-2-1\n\n\0ACK\nid:c1-1-2\n\n\0")
    assert peer.broker.of("acknowledge") == [("q", [1]), ("r", [1]), ("q", [2])]


def test_an_unknown_word_is_client() -> None:
    peer = subscribed("bogus")
    peer.offer("q", *run(1))
    assert peer.broker.of("acknowledge") == []
    assert ack(peer, 1) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_s12_disconnect_counts_a_delivery(version: str) -> None:
    peer = subscribed(version=version)
    peer.offer("q", *run(1))
    peer.say(b"DISCONNECT\nreceipt:1\n\n\0")
    assert peer.broker.of("release failed") == [("q", [1])]
    assert peer.session.closing


@pytest.mark.parametrize(
    "name",
    [
        "c1-1-0002",
        "c1-1-",
        "c1-1",
        "c1-2-0001",
        "c2-1-0001",
        "1",
        "",
        "c1-1--1",
        "c1-1-" + "9" * 30,
    ],
)
@pytest.mark.parametrize("receipt", ["", "receipt:answer\n"])
def test_s14_an_id_that_waits_for_nothing(name: str, receipt: str) -> None:
    peer = subscribed()
    peer.offer("q", *run(1))
    ((_, headers, _),) = frames(peer.say(f"ACK\nid:{name}\n{receipt}\n\0".encode()))
    assert headers["error-code"] == "not-found"
    assert headers.get("receipt-id") == ("answer" if receipt else None)
    assert peer.session.closing
    assert peer.broker.of("acknowledge") == []
    assert peer.broker.of("release failed") == [("q", [1])]


def test_an_id_counts_once_and_acks_before_the_bad_one_count() -> None:
    peer = subscribed("client-individual", "consumer-window-size:-1")
    peer.offer("q", *run(1, 2, 3))
    out = peer.say(b"ACK\nid:c1-1-1\n\n\0ACK\nid:c1-1-1\n\n\0ACK\nid:c1-1-2\n\n\0")
    assert frames(out)[0][1]["error-code"] == "not-found"
    assert peer.broker.of("acknowledge") == [("q", [1])]
    assert peer.broker.of("release failed") == [("q", [2, 3])]


def test_s15_1_1_needs_the_right_subscription() -> None:
    peer = subscribed(version="1.1")
    peer.say(b"SUBSCRIBE\nid:t\ndestination:r\nack:client\n\n\0")
    peer.offer("q", *run(1))
    for lines in (
        "message-id:c1-1-1\nsubscription:t\n",
        "message-id:c1-1-1\nsubscription:z\n",
    ):
        ((_, headers, _),) = frames(peer.say(f"ACK\nreceipt:a\n{lines}\n\0".encode()))
        assert (headers["error-code"], headers["receipt-id"]) == ("not-found", "a")
    ((_, headers, body),) = frames(peer.say(b"ACK\nmessage-id:c1-1-1\n\n\0"))
    assert (headers["error-code"], b"subscription" in body) == ("bad-header", True)
    assert peer.broker.of("acknowledge") == []
    assert ack(peer, 1) == b""
    assert peer.broker.of("acknowledge") == [("q", [1])]


@pytest.mark.parametrize(("version", "needed"), [("1.0", "message-id"), ("1.2", "id")])
def test_an_ack_without_its_header(version: str, needed: str) -> None:
    peer = subscribed(version=version)
    peer.offer("q", *run(1))
    other = {"1.0": "id", "1.2": "message-id"}[version]
    ((_, headers, body),) = frames(peer.say(f"ACK\n{other}:c1-1-1\n\n\0".encode()))
    assert headers["error-code"] == "bad-header"
    assert f"ACK has no {needed} header" in body.decode()


def test_receipts_of_acks_wait_for_the_disk() -> None:
    peer = subscribed()
    peer.offer("q", *run(1))
    assert ack(peer, 1, "receipt:a") == b""
    assert frames(peer.sync())[0][1] == {"receipt-id": "a"}


# ---- NACK


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    ("line", "what"),
    [("a:b", "release failed"), ("requeue:true", "release failed"), ("requeue:false", "reject")],
)
def test_nack_gives_back_or_dead_letters(version: str, line: str, what: str) -> None:
    peer = subscribed("client", "consumer-window-size:-1", version=version)
    peer.offer("q", *run(1, 2, 3))
    assert ack(peer, 2, line, "receipt:n", command="NACK") == b""
    assert peer.broker.of(what) == [("q", [1, 2])], "cumulative in client mode"
    assert peer.broker.of("acknowledge") == []
    assert frames(peer.sync())[0][1] == {"receipt-id": "n"}


def test_nack_refuses_other_words_and_1_0() -> None:
    peer = subscribed(version="1.1")
    peer.offer("q", *run(1))
    assert (
        frames(ack(peer, 1, "requeue:perhaps", command="NACK"))[0][1]["error-code"] == "bad-value"
    )
    assert peer.broker.of("release failed") == []
    oldest = subscribed(version="1.0")
    assert frames(oldest.say(b"NACK\nmessage-id:c1-1-1\n\n\0"))[0][1]["error-code"] == "bad-frame"
    assert oldest.session.closing


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_messages_larger_than_was_guessed_are_written_a_part_at_a_time(mode: str) -> None:
    peer = subscribed(mode, "consumer-window-size:-1")
    out = peer.offer("q", *run(*range(1, 17), size=1 << 20))
    sent = len(frames(out))
    assert 1 <= sent <= 4
    (back,) = [call[-1] for call in peer.broker.of("release")]
    assert back == list(range(sent + 1, 17)), "the others are the queue's again"


# ---- windows


@pytest.mark.parametrize("header", ["consumer-window-size", "activemq.prefetchSize"])
def test_s16_window_0_is_one_at_a_time(header: str) -> None:
    peer = subscribed("client-individual", f"{header}:0")
    assert len(delivered(peer.offer("q", *run(1, 2, 3)))) == 1
    assert len(delivered(ack(peer, 1))) == 1
    assert len(delivered(ack(peer, 2, command="NACK"))) == 1
    assert ack(peer, 3) == b""


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_s17_a_window_of_540_bytes_holds_two_of_270(mode: str) -> None:
    peer = subscribed(mode, "consumer-window-size:540")
    out = peer.offer("q", *run(1, 2, 3, size=122))
    assert len(delivered(out)) == 2
    assert 2 * 270 <= len(out) < 2 * 280, "the scenario's sizes"
    if mode == "client":
        assert len(delivered(ack(peer, 2))) == 1
    else:
        assert len(delivered(ack(peer, 1))) == 1
        assert ack(peer, 2) == b""
    assert ack(peer, 3) == b""
    assert sorted(s for _, seqs in peer.broker.of("acknowledge") for s in seqs) == [1, 2, 3]


def test_a_frame_above_the_window_goes_alone() -> None:
    peer = subscribed("client", "consumer-window-size:300")
    big = run(1, 2, size=5000)
    assert len(delivered(peer.offer("q", *big))) == 1
    assert len(delivered(ack(peer, 1))) == 1


def test_sizes_that_were_guessed_wrong_never_overrun_the_window() -> None:
    peer = subscribed("client-individual", "consumer-window-size:3000")
    out = peer.offer("q", *run(*range(1, 9), size=10))
    numbers = delivered(out)
    assert len(numbers) == 8
    for number in range(1, 9):
        ack(peer, number)
    out = peer.offer("q", *run(*range(11, 21), size=1500))
    assert len(delivered(out)) == 2, "3,000 bytes are reached with the second"
    for number in range(9, 19):
        out += ack(peer, number)
        unacked = len(delivered(out)) - (number - 8)
        assert unacked <= 2
    assert len(delivered(out)) == 10
    assert peer.broker.queues["q"] == []
    peer.session.connection_lost(peer.now)


def test_messages_held_back_by_the_window_go_back_unmarked() -> None:
    peer = subscribed("client", "consumer-window-size:3000")
    peer.offer("q", *run(1, size=10))
    ack(peer, 1)
    peer.offer("q", *run(*range(11, 21), size=1500))
    peer.session.connection_lost(peer.now)
    (unsent,) = peer.broker.of("release")
    (sent,) = peer.broker.of("release failed")
    assert sent == ("q", [11, 12])
    assert unsent[1]
    assert set(unsent[1]) <= set(range(13, 21))  # type: ignore[call-overload]


def test_prefetch_count_counts_messages() -> None:
    peer = subscribed("client-individual", "prefetch-count:3")
    assert len(delivered(peer.offer("q", *run(*range(1, 11), size=100_000)))) == 3
    assert len(delivered(ack(peer, 2))) == 1
    both = subscribed("client", "prefetch-count:3", "consumer-window-size:0")
    assert len(delivered(both.offer("q", *run(1, 2)))) == 1


def test_the_default_window_is_10240_bytes() -> None:
    peer = subscribed("client")
    out = peer.offer("q", *run(*range(1, 101), size=1000))
    count = len(delivered(out))
    assert count == -(-10_240 // (len(out) // count))


# ---- UNSUBSCRIBE


def test_s19_a_durable_subscription_goes_with_its_name_only() -> None:
    peer = Peer("1.1", connect="client-id:me\n")
    subscribe = b"SUBSCRIBE\nid:0\ndestination:/topic/q\ndurable-subscription-name:n\n\n\0"
    peer.say(subscribe)
    assert frames(peer.say(b"UNSUBSCRIBE\nid:0\nreceipt:1\n\n\0"))[0][0] == "RECEIPT"
    assert peer.broker.of("delete subscription") == []
    peer.say(subscribe)
    peer.say(b"UNSUBSCRIBE\nid:0\ndurable-subscription-name:n\n\n\0")
    assert peer.broker.of("delete subscription") == [("me.n",)]
    assert len(peer.broker.of("close subscription")) == 2
    peer.say(b"UNSUBSCRIBE\nactivemq.subscriptionName:other\n\n\0")
    assert peer.broker.of("delete subscription") == [("me.n",), ("me.other",)]
    peer.broker.refuse_delete = Refusal(code=Code.IN_USE, text="It has consumers.")
    out = peer.say(b"UNSUBSCRIBE\nid:9\nreceipt:2\ndurable-subscription-name:n\n\n\0")
    assert frames(out)[0][1]["error-code"] == "in-use"


@pytest.mark.parametrize(
    ("lines", "code"),
    [("id:9\n", "not-found"), ("", "bad-header"), ("destination:q\n", "bad-header")],
)
def test_unsubscribe_of_nothing(lines: str, code: str) -> None:
    peer = subscribed(version="1.1")
    ((_, headers, _),) = frames(peer.say(f"UNSUBSCRIBE\nreceipt:r\n{lines}\n\0".encode()))
    assert (headers["error-code"], headers["receipt-id"]) == (code, "r")
    assert peer.broker.of("close subscription") == []


def test_an_id_can_be_used_again_and_old_ids_are_dead() -> None:
    peer = subscribed(version="1.1")
    peer.offer("q", *run(1))
    peer.say(b"UNSUBSCRIBE\nid:s\n\n\0SUBSCRIBE\nid:s\ndestination:q\nack:client\n\n\0")
    assert frames(ack(peer, 1))[0][1]["error-code"] == "not-found"
    out = peer.offer("q", *run(1))
    assert delivered(out) == ["c1-2-0001"]


def test_a_deleted_queue_is_told_and_only_1_2_ends() -> None:
    for version in VERSIONS:
        peer = subscribed(version=version)
        peer.offer("q", *run(1))
        peer.broker.drop_queue("q")
        # What it held is given back, so that the broker's figures end, and it leaves once.
        assert peer.broker.of("release failed") == []
        assert len(peer.broker.of("release")) == 1
        assert peer.broker.of("close subscription") == [("q",)]
        ((command, headers, _),) = frames(peer.hear())
        assert (command, headers["error-code"]) == ("ERROR", "queue-deleted")
        assert peer.session.closing is (version == "1.2")
        if version != "1.2":
            assert peer.say(b"SUBSCRIBE\nid:s\ndestination:q\n\n\0") == b""
        assert len(peer.broker.of("close subscription")) == 1


# ---- transactions


def test_s20_sends_happen_at_commit_or_not_at_all() -> None:
    peer = Peer()
    out = peer.say(
        b"BEGIN\ntransaction:t\nreceipt:1\n\n\0"
        b"SEND\ndestination:q\ntransaction:t\nreceipt:2\n\nx\0"
        b"SEND\ndestination:q\ntransaction:t\ncontent-length:1\n\ny\0"
    )
    assert [f[1]["receipt-id"] for f in frames(out)] == ["1", "2"]
    assert peer.broker.of("send") == []
    assert peer.say(b"COMMIT\ntransaction:t\nreceipt:3\n\n\0") == b""
    ((sends,),) = peer.broker.of("commit")
    assert [form[-1:] for _, form, _, _ in sends] == [b"x", b"y"]
    assert b"transaction" not in sends[0][1]
    assert frames(peer.sync())[0][1] == {"receipt-id": "3"}
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nz\0")
    assert frames(peer.say(b"ABORT\ntransaction:t\nreceipt:4\n\n\0"))[0][1] == {"receipt-id": "4"}
    assert len(peer.broker.of("commit")) == 1
    assert peer.broker.of("rollback") == [()]


def test_disconnect_waits_for_a_commit() -> None:
    peer = Peer()
    send = b"SEND\ndestination:q\ntransaction:t\n\nx\0"
    peer.say(b"BEGIN\ntransaction:t\n\n\0" + send + b"COMMIT\ntransaction:t\n\n\0")
    assert peer.say(b"DISCONNECT\nreceipt:bye\n\n\0") == b""
    assert frames(peer.sync())[0][1] == {"receipt-id": "bye"}


def test_s13_acks_and_nacks_in_a_transaction() -> None:
    peer = subscribed("client-individual", "consumer-window-size:-1")
    peer.offer("q", *run(1, 2, 3, 4))
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    ack(peer, 1, "transaction:t")
    ack(peer, 2, "transaction:t", command="NACK")
    ack(peer, 3, "transaction:t", "requeue:false", command="NACK")
    assert [c[0] for c in peer.broker.calls] == ["subscribe"]
    peer.say(b"COMMIT\ntransaction:t\n\n\0")
    assert peer.broker.of("acknowledge") == [("q", [1])]
    assert peer.broker.of("release failed") == [("q", [2])]
    assert peer.broker.of("reject") == [("q", [3])]
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    ack(peer, 4, "transaction:t")
    peer.say(b"ABORT\ntransaction:t\n\n\0")
    assert peer.broker.of("release failed") == [("q", [2]), ("q", [4])]


def test_an_ack_in_an_unknown_transaction_settles_nothing() -> None:
    peer = subscribed(version="1.1")
    peer.offer("q", *run(1))
    out = ack(peer, 1, "transaction:nobody", "receipt:r")
    assert frames(out)[0][1]["error-code"] == "not-found"
    assert ack(peer, 1) == b""
    assert peer.broker.of("acknowledge") == [("q", [1])]


def test_a_subscription_ends_after_the_transaction_that_holds_its_messages() -> None:
    peer = subscribed("client", "consumer-window-size:-1")
    peer.offer("q", *run(1, 2))
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    ack(peer, 1, "transaction:t")
    assert frames(peer.say(b"UNSUBSCRIBE\nid:s\nreceipt:u\n\n\0"))[0][0] == "RECEIPT"
    assert peer.broker.of("release") == [("q", [2])]
    assert peer.broker.of("close subscription") == []
    assert peer.offer("q", *run(3)) == b""
    peer.say(b"COMMIT\ntransaction:t\n\n\0")
    assert peer.broker.of("acknowledge") == [("q", [1])]
    assert peer.broker.of("close subscription") == [("q",)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("BEGIN\ntransaction:t\n", "already-exists"),
        ("COMMIT\ntransaction:u\n", "not-found"),
        ("ABORT\ntransaction:u\n", "not-found"),
        ("BEGIN\n", "bad-header"),
        ("COMMIT\n", "bad-header"),
        ("ABORT\n", "bad-header"),
    ],
)
def test_s21_transactions_are_named_right(version: str, frame: str, code: str) -> None:
    peer = Peer(version)
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    ((_, headers, _),) = frames(peer.say(f"{frame}receipt:r\n\n\0".encode()))
    assert (headers["error-code"], headers["receipt-id"]) == (code, "r")


def test_a_refused_part_makes_commit_fail_whole() -> None:
    peer = Peer("1.1")
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nx\0")
    peer.broker.refuse_work = FULL
    out = peer.say(b"SEND\ndestination:q\ntransaction:t\nreceipt:1\n\ny\0")
    assert frames(out)[0][1]["receipt-id"] == "1"
    peer.broker.refuse_work = None
    out = peer.say(b"COMMIT\ntransaction:t\nreceipt:2\n\n\0")
    assert frames(out)[0][1]["error-code"] == "address-full"
    assert peer.broker.of("commit") == []
    assert peer.broker.of("rollback") == [()]
    assert peer.say(b"BEGIN\ntransaction:t\n\n\0") == b"", "the name is free again"


def test_a_commit_that_the_broker_refuses_is_rolled_back() -> None:
    peer = Peer("1.1")
    peer.broker.refuse_commit = FULL
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nx\0")
    out = peer.say(b"COMMIT\ntransaction:t\nreceipt:2\n\n\0")
    assert frames(out)[0][1]["error-code"] == "address-full"
    assert peer.broker.of("rollback") == [()]


def test_transactions_are_bounded_in_number_frames_bytes_and_time() -> None:
    limits = StompLimits(transactions_max=2, transaction_frames_max=3, transaction_bytes_max=500)
    peer = Peer("1.1", limits=limits)
    for name in "ab":
        assert peer.say(f"BEGIN\ntransaction:{name}\n\n\0".encode()) == b""
    assert frames(peer.say(b"BEGIN\ntransaction:c\n\n\0"))[0][1]["error-code"] == "too-many"
    send = b"SEND\ndestination:q\ntransaction:a\n\nx\0"
    assert peer.say(send * 3) == b""
    assert frames(peer.say(send))[0][1]["error-code"] == "too-many"
    big = b"SEND\ndestination:q\ntransaction:b\n\n" + b"x" * 600 + b"\0"
    assert frames(peer.say(big))[0][1]["error-code"] == "too-large"


def test_an_idle_transaction_is_rolled_back_and_commit_is_told() -> None:
    peer = Peer("1.1", limits=StompLimits(ttl_ms=-1, transaction_seconds=300))
    peer.say(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:q\ntransaction:t\n\nx\0")
    peer.session.tick(peer.now + 299)
    assert peer.broker.of("rollback") == []
    peer.session.tick(peer.now + 300)
    assert peer.broker.of("rollback") == [()]
    out = peer.say(b"COMMIT\ntransaction:t\n\n\0")
    assert b"idle for 300 s" in out
    assert peer.broker.of("rollback") == [()]
    assert peer.broker.of("commit") == []


def test_a_failed_transaction_that_is_left_idle_gives_back_what_it_holds() -> None:
    budget = Budget(10_000)
    limits = StompLimits(
        ttl_ms=-1, transaction_seconds=300, transaction_frames_max=1, unfinished=budget
    )
    peer = Peer("1.1", limits=limits)
    peer.say(b"BEGIN\ntransaction:t\n\n\0")
    send = b"SEND\ndestination:q\ntransaction:t\n\nx\0"
    assert frames(peer.say(send + send))[0][1]["error-code"] == "too-many"
    assert budget.held > 0
    peer.session.tick(peer.now + 299)
    assert peer.broker.of("rollback") == []
    peer.session.tick(peer.now + 300)
    assert (peer.broker.of("rollback"), budget.held) == ([()], 0)
    # The commit is told why it failed, not that it was idle, and there is nothing left to undo.
    assert frames(peer.say(b"COMMIT\ntransaction:t\n\n\0"))[0][1]["error-code"] == "too-many"
    assert peer.broker.of("rollback") == [()]
