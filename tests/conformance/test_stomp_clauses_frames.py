"""Clauses of STOMP 1.2 that are a server's: frames, headers, login and heart-beats.

`stomp_clauses.toml` says which test proves which clause. What 1.0 and 1.1 have in common with 1.2
is tried in all of them.
"""

from __future__ import annotations

import re

import pytest

from tests.broker.core import Core
from tests.conformance.clients import Stomp, bodies
from tests.conformance.stomp_clauses import Stranger, every_version, from_1_1, refused, taken
from tests.protocols.scripted_broker import ScriptedAuthenticator


@pytest.fixture
def core() -> Core:
    return Core()


# ---- STOMP Frames


@every_version
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_lines_end_in_lf_or_crlf(core, version, eol):
    client = Stomp(core, version)
    client.subscribe("q")
    frame = eol.join(["SEND", "destination:q", "note:x", "", "body\0"])
    came = client.say(eol + frame + eol * 3 + frame)
    assert bodies(came) == ["body"] * 2
    assert [headers["note"] for _, headers, _ in came] == ["x"] * 2


@every_version
def test_what_is_sent_ends_in_lf_alone(core, version):
    client = Stomp(core, version)
    out = b""
    for said in (
        b"SUBSCRIBE\r\nid:s\r\ndestination:q\r\nreceipt:1\r\n\r\n\0",
        b"SEND\r\ndestination:q\r\n\r\nx\0",
        b"UNSUBSCRIBE\r\nid:none\r\n\r\n\0",
    ):
        client.session.receive_data(said, client.now)
        core.sync()
        out += client.session.data_to_send()
    assert b"RECEIPT\n" in out
    assert b"MESSAGE\n" in out
    assert b"ERROR\n" in out
    assert b"\r" not in out


@every_version
@pytest.mark.parametrize("command", ["send", "Send", " SEND", "SEND "])
def test_commands_are_in_capitals(core, version, command):
    client = Stomp(core, version)
    refused(client.say(f"{command}\ndestination:q\n\nx\0"), "bad-frame")
    assert client.session.closing
    assert taken(core) == []


@every_version
def test_names_of_headers_are_case_sensitive(core, version):
    client = Stomp(core, version)
    refused(client.say("SEND\nDestination:q\n\nx\0"), "bad-header")
    assert taken(core) == []
    other = Stomp(core, version)
    other.send("q", "y", Receipt="z")
    assert other.subscribe("q")[0][1]["Receipt"] == "z"


# ---- Value Encoding


@every_version
def test_headers_are_utf_8(core, version):
    client = Stomp(core, version)
    client.send("straße", "x", größe="schön \N{SNOWMAN}")
    ((_, headers, _),) = Stomp(core, version).subscribe("straße")
    assert (headers["destination"], headers["größe"]) == ("straße", "schön \N{SNOWMAN}")
    refused(client.say(b"SEND\ndestination:q\nnote:\xff\n\nx\0"), "bad-header")
    assert client.session.closing


def test_each_escape_means_its_octet_both_ways(core):
    client = Stomp(core)
    client.subscribe(
        "q",
        selector="a = 'x\ry\nz:\\'".replace("\\", "\\\\")
        .replace("\r", "\\r")
        .replace("\n", "\\n")
        .replace(":", "\\c"),
    )
    ((_, headers, _),) = client.say("SEND\ndestination:q\na:x\\ry\\nz\\c\\\\\nb\\c\\n:1\n\n\0")
    assert headers["a"] == "x\\ry\\nz\\c\\\\"
    assert headers["b\\c\\n"] == "1"


@pytest.mark.parametrize("escape", ["\\t", "\\a", "\\0", "\\C", "\\ ", "\\"])
def test_an_undefined_escape_is_fatal(core, escape):
    client = Stomp(core)
    headers = refused(
        client.say(f"SEND\ndestination:q\nreceipt:1\na:x{escape}\n\nx\0"), "bad-header"
    )
    assert headers["receipt-id"] == "1"
    assert client.session.closing
    assert taken(core) == []


def test_1_1_knows_no_escape_of_cr(core):
    client = Stomp(core, "1.1")
    refused(client.say("SEND\ndestination:q\na:\\r\n\nx\0"), "bad-header")
    assert client.session.closing


def test_1_0_knows_no_escapes(core):
    client = Stomp(core, "1.0")
    client.subscribe("q")
    ((_, headers, _),) = client.say("SEND\ndestination:q\na:\\n\\q\n\nx\0")
    assert headers["a"] == "\\n\\q"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_connect_and_connected_are_not_escaped(core, command):
    stranger = Stranger(core)
    ((name, headers, _),) = stranger.says(
        f"{command}\naccept-version:1.2\nhost:h\nrequest-id:a\\nb\\q:c\n\n\0"
    )
    assert (name, headers["response-id"]) == ("CONNECTED", "a\\nb\\q:c")


@from_1_1
def test_nothing_is_trimmed_or_padded(core, version):
    client = Stomp(core, version)
    client.subscribe(" q ", id=" s ")
    ((_, headers, _),) = client.say("SEND\ndestination: q \n a : \tb \n\nx\0")
    assert headers["destination"] == " q "
    assert headers["subscription"] == " s "
    assert headers[" a "] == " \tb "


# ---- Body


@every_version
def test_only_message_and_error_have_a_body(core, version):
    client = Stomp(core, version)
    came = client.say(
        "SUBSCRIBE\nid:s\ndestination:q\nreceipt:1\n\n\0SEND\nreceipt:2\ndestination:q\n\nx\0"
        "BEGIN\nreceipt:3\ntransaction:t\n\n\0ABORT\nreceipt:4\ntransaction:t\n\n\0"
    )
    came += client.say("COMMIT\ntransaction:t\n\n\0")
    assert {name for name, _, body in came if body} == {"MESSAGE", "ERROR"}
    assert {name for name, _, body in [*came, *client.greeting] if not body} == {
        "CONNECTED",
        "RECEIPT",
    }


# ---- Header content-length


@every_version
def test_as_many_octets_are_read_as_content_length_says(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    ((_, headers, body),) = client.say(b"SEND\ndestination:q\ncontent-length:9\n\na\0b\0\0c\n\nd\0")
    assert (headers["content-length"], body) == ("9", b"a\0b\0\0c\n\nd")


@every_version
def test_a_frame_without_a_body_may_have_a_content_length(core, version):
    client = Stomp(core, version)
    came = client.say("BEGIN\ntransaction:t\ncontent-length:0\nreceipt:1\n\n\0")
    assert [headers["receipt-id"] for _, headers, _ in came] == ["1"]


@from_1_1
def test_what_is_behind_the_octets_that_were_told_is_cut(core, version):
    """As Artemis does: a client that counts characters loses the end of a body, and is not cut."""
    client = Stomp(core, version)
    came = client.ask("SEND", "xyz", destination="q", content_length="2")
    assert [name for name, _, _ in came] == ["RECEIPT"]
    client.send("q", "next")
    assert taken(core) == ["xy", "next"]


def test_a_frame_ends_in_nul_in_1_0(core):
    client = Stomp(core, "1.0")
    refused(client.say("SEND\ndestination:q\ncontent-length:1\n\nxy\0"), "bad-frame")
    assert client.session.closing


@every_version
def test_message_and_error_tell_the_length_of_their_body(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    came = client.say("SEND\ndestination:q\n\nüx\0") + client.say("ABORT\ntransaction:t\n\n\0")
    assert [name for name, _, _ in came] == ["MESSAGE", "ERROR"]
    for _, headers, body in came:
        assert int(headers["content-length"]) == len(body) > 0


# ---- Header content-type


@every_version
def test_the_type_of_a_body_is_passed_on_and_none_is_made_up(core, version):
    client = Stomp(core, version)
    client.subscribe("q")
    kind = "text/html;charset=utf-16"
    ((_, headers, body),) = client.say(
        b"SEND\ndestination:q\ncontent-length:4\ncontent-type:"
        + kind.encode()
        + b"\n\n\xff\xfea\0\0"
    )
    assert (headers["content-type"], body) == (kind, b"\xff\xfea\0")
    ((_, headers, body),) = client.say(b"SEND\ndestination:q\n\n\xff\0")
    assert "content-type" not in headers
    assert body == b"\xff"


# ---- Header receipt


@every_version
def test_each_frame_but_connect_is_confirmed_by_its_receipt(core, version):
    client = Stomp(core, version)
    other = Stomp(core, version)
    other.send("q", "1", "2")
    first, second = client.subscribe("q", "client-individual")  # SUBSCRIBE
    client.settle(first)  # ACK
    if version != "1.0":
        client.settle(second, "NACK")
    client.do("BEGIN", transaction="t")
    client.do("SEND", "x", destination="other", transaction="t")
    client.do("COMMIT", transaction="t")
    client.do("BEGIN", transaction="t")
    client.do("ABORT", transaction="t")
    client.do("UNSUBSCRIBE", id="s")
    client.do("DISCONNECT")


@every_version
@pytest.mark.parametrize("value", ["1", "a b", "ü", "-", "x" * 500, "a:b"])
def test_the_receipt_has_the_value_that_was_asked_for(core, version, value):
    came = Stomp(core, version).say(f"SEND\ndestination:q\nreceipt:{value}\n\nx\0")
    assert [(n, h["receipt-id"]) for n, h, _ in came] == [("RECEIPT", value)]


@every_version
def test_connect_is_not_confirmed_by_a_receipt(core, version):
    came = Stranger(core).says(f"CONNECT\naccept-version:{version}\nreceipt:1\nhost:h\n\n\0")
    assert [name for name, _, _ in came] == ["CONNECTED"]


# ---- Repeated Header Entries


def test_of_repeated_headers_the_first_counts(core):
    client = Stomp(core)
    client.subscribe("q", selector="a = '1'")
    ((_, headers, _),) = client.say(
        "SEND\ndestination:q\ndestination:r\na:1\na:2\nreceipt-x:3\nreceipt-x:4\n\nx\0"
    )
    assert (headers["a"], headers["receipt-x"]) == ("1", "3")
    assert "r" not in core.gateway.addresses


# ---- Size Limits


@every_version
@pytest.mark.parametrize(
    ("limits", "frame"),
    [
        ({"headers_max": 3}, "SEND\ndestination:q\na:1\nb:2\nc:3\nreceipt:1\n\nx\0"),
        (
            {"header_line_bytes_max": 64},
            f"SEND\ndestination:q\na:{'x' * 64}\nreceipt:1\n\nx\0",
        ),
        ({"body_bytes_max": 8}, "SEND\ndestination:q\ncontent-length:9\nreceipt:1\n\n123456789\0"),
        ({"body_bytes_max": 8}, "SEND\ndestination:q\nreceipt:1\n\n123456789\0"),
    ],
)
def test_a_limit_is_an_error_and_the_end(core, version, limits, frame):
    client = Stomp(core, version, **limits)
    ((command, headers, _),) = client.say(frame)
    assert command == "ERROR"
    assert headers["error-code"] in ("too-large", "too-many")
    assert str(next(iter(limits.values()))) in headers["message"]
    assert client.session.closing
    assert taken(core) == []


# ---- Connecting


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@every_version
def test_stomp_is_another_word_for_connect(core, command, version):
    stranger = Stranger(core)
    came = stranger.says(f"{command}\naccept-version:{version}\nhost:h\n\n\0")
    ((name, headers, body),) = came
    assert (name, headers["version"], body) == ("CONNECTED", version, b"")


@pytest.mark.parametrize("host", ["", "host:\n", "host:elsewhere\n", "host:/\n"])
def test_any_host_is_the_one_there_is(core, host):
    ((name, _, _),) = Stranger(core).says(f"CONNECT\naccept-version:1.2\n{host}\n\0")
    assert name == "CONNECTED"


@pytest.mark.parametrize(
    "frame",
    [
        "CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:p\nreceipt:1\n\n\0",
        "CONNECT\naccept-version:1.2\nhost:h\nreceipt:1\n\n\0",
        "CONNECT\naccept-version:1.2\nhost:h\nheart-beat:x\nreceipt:1\n\n\0",
        "CONNECT\naccept-version:3.0\nhost:h\nreceipt:1\n\n\0",
        "SEND\ndestination:q\nreceipt:1\n\nx\0",
        "CONNECT\nno colon\nreceipt:1\n\n\0",
        "CONNECT\n" + "a:b\n" * 50 + "receipt:1\n\n\0",
    ],
)
def test_a_connection_that_is_rejected_is_told_why_and_closed(core, frame):
    users = ScriptedAuthenticator(is_open=False)
    stranger = Stranger(core, users=users)
    came = stranger.says(frame)
    if users.answer is not None:
        assert came == []
        users.answer(False)
        came = stranger.hears()
    ((command, headers, body),) = came
    assert command == "ERROR"
    assert set(headers) >= {"message", "error-code", "content-type", "content-length"}
    assert headers["receipt-id"] == "1"
    assert body
    assert stranger.gone


@every_version
def test_connected_says_version_session_and_server(core, version):
    first = Stranger(core, server_name="Sluicegate/1.0").says(
        f"CONNECT\naccept-version:{version}\nhost:h\nheart-beat:0,0\n\n\0"
    )
    ((_, headers, _),) = first
    assert headers["version"] == version
    assert headers["session"]
    assert re.fullmatch(r"\d+,\d+", headers["heart-beat"])
    if version != "1.0":
        assert re.fullmatch(r"[^\s/]+(/\S+)?( .+)?", headers["server"])


@pytest.mark.parametrize(
    ("accepted", "spoken"),
    [
        ("1.0,1.1,2.0", "1.1"),
        ("1.2,1.0", "1.2"),
        ("1.0", "1.0"),
        (" 1.1 , 1.0 ", "1.1"),
        ("2.0,1.2", "1.2"),
    ],
)
def test_the_highest_common_version_is_spoken(core, accepted, spoken):
    ((_, headers, _),) = Stranger(core).says(f"CONNECT\naccept-version:{accepted}\nhost:h\n\n\0")
    assert headers["version"] == spoken


def test_without_accept_version_it_is_1_0(core):
    stranger = Stranger(core)
    ((_, headers, _),) = stranger.says("CONNECT\n\n\0")
    assert "version" not in headers
    refused(stranger.says("NACK\nmessage-id:1\n\n\0"), "bad-frame")


def test_no_common_version_is_an_error_that_names_ours(core):
    stranger = Stranger(core)
    ((command, headers, body),) = stranger.says("CONNECT\naccept-version:2.0,2.1\nhost:h\n\n\0")
    assert (command, headers["version"]) == ("ERROR", "1.0,1.1,1.2")
    assert headers["content-type"] == "text/plain"
    assert b"1.0, v1.1, v1.2" in body
    assert stranger.gone


# ---- Heart-beating


@every_version
def test_without_the_header_no_beats_are_sent(core, version):
    client = Stomp(core, version)
    assert "heart-beat" not in client.greeting[0][1]
    for _ in range(50):
        client.now += 1
        client.session.tick(client.now)
        assert client.session.data_to_send() == b""


@pytest.mark.parametrize("header", ["", "heart-beat:0,0\n"])
def test_a_missing_header_is_as_0_0(core, header):
    """No beat is expected then; silence for the acceptor's time to live is the end all the same."""
    stranger = Stranger(core, ttl_ms=60_000)
    stranger.says(f"CONNECT\naccept-version:1.2\nhost:h\n{header}\n\0")
    stranger.now += 59.9
    stranger.session.tick(stranger.now)
    assert stranger.session.data_to_send() == b""
    assert not stranger.gone
    stranger.now += 0.2
    stranger.session.tick(stranger.now)
    refused(stranger.hears(), "bad-frame")
    assert stranger.gone


@pytest.mark.parametrize(("asked", "every"), [(500, 0.5), (2_000, 2.0), (1, 0.5)])
@every_version
def test_an_eol_goes_out_in_each_interval_that_was_agreed(core, version, asked, every):
    client = Stomp(core, version, connect=f"heart-beat:0,{asked}\n")
    ours = int(client.greeting[0][1]["heart-beat"].split(",")[0])
    assert max(ours, asked) / 1000 == every
    for _ in range(10):
        client.now += every
        client.session.tick(client.now)
        assert client.session.data_to_send() == b"\n"


@every_version
def test_any_data_is_a_sign_of_life(core, version):
    client = Stomp(core, version, connect="heart-beat:1000,0\n")
    for piece in ("\n", "SE", "ND\nd", "estination:q\n\n", "x\0", "\r\n", "\n"):
        client.now += 1.9
        client.session.tick(client.now)
        client.say(piece)
    assert not client.session.closing
    assert taken(core) == ["x"]


def test_a_silent_peer_is_given_a_margin_and_then_considered_dead(core):
    client = Stomp(core, connect="heart-beat:1000,0\n")
    client.now += 1.95
    client.session.tick(client.now)
    assert client.more() == []
    client.now += 0.1
    client.session.tick(client.now)
    ((command, headers, _),) = client.more()
    assert (command, client.session.closing) == ("ERROR", True)
    assert "message" in headers


@pytest.mark.parametrize("value", ["1", "1,", "a,b", "1,2,3", "1.5,0", "", "0x1,0"])
def test_a_heart_beat_is_two_numbers(core, value):
    stranger = Stranger(core)
    refused(stranger.says(f"CONNECT\naccept-version:1.2\nheart-beat:{value}\n\n\0"), "bad-header")
    assert stranger.gone
