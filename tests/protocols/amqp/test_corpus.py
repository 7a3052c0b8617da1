"""The nasty input of tests/corpus/amqp: one outcome however it comes, and nobody else feels it.

See the corpus' README for how a case is written.
"""

from __future__ import annotations

import re
import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest

from protocols.amqp.performatives import (
    ACCEPTED,
    Coordinator,
    Declare,
    Disposition,
    Rejected,
    TransactionalState,
)
from tests.protocols.amqp.controlling import asked
from tests.protocols.amqp.controlling import told as told_by
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    RECEIVER,
    SASL_HEADER,
    Frame,
    Peer,
    data_message,
    names,
    of,
    raw_frame,
)
from tests.protocols.scripted_broker import ScriptedBroker

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "amqp"
BYTE_BY_BYTE_MAX = 2_000
PIECE = 1_000
_TOKEN = re.compile(r'\s+|"[^"]*"|\(\d+\*[0-9a-f]+\)|(?:[0-9a-f]{2})+|[][{}]')


def notation(text: str) -> bytes:
    """Return the bytes that a line of the corpus stands for."""
    # One level for each open list: its kind, its finished values, and the value being written.
    levels: list[tuple[str, list[bytes], bytearray]] = [("", [], bytearray())]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found, f"{text[at:]!r} is no notation"
        token, at = found.group(), found.end()
        kind, values, current = levels[-1]
        if token.isspace():
            values.append(bytes(current))
            current.clear()
        elif token in "[{":
            levels.append((token, [], bytearray()))
        elif token in "]}":
            levels.pop()
            assert kind + token in ("[]", "{}"), text
            levels[-1][2].extend(_compound(kind, [v for v in (*values, bytes(current)) if v]))
        elif token.startswith('"'):
            current += token[1:-1].encode()
        else:
            count, _, digits = token.strip("()").rpartition("*")
            current += bytes.fromhex(digits) * int(count or 1)
    assert len(levels) == 1, f"{text!r} is not closed"
    return b"".join(levels[0][1]) + bytes(levels[0][2])


def _compound(kind: str, values: list[bytes]) -> bytes:
    body = b"".join(values)
    code = 0xC0 if kind == "[" else 0xC1
    if len(body) < 255:
        return bytes((code, len(body) + 1, len(values))) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, len(values)) + body


def line(text: str) -> bytes:
    where, _, rest = text.partition(" ")
    body = notation(rest)
    if where == "raw":
        return body
    return raw_frame(body, kind=1) if where == "sasl" else raw_frame(body, channel=int(where))


def raw(send: list[Any]) -> bytes:
    return b"".join(
        line(part) if isinstance(part, str) else line(part[0]) * part[1] for part in send
    )


def cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}-{case['id']}")
        for path in sorted(CORPUS.glob("*.toml"))
        for case in tomllib.loads(path.read_text("utf-8"))["case"]
    ]


def state(name: str, broker: ScriptedBroker) -> Peer:
    """Return a connection that has come as far as the README says of this state."""
    if name in ("header", "sasl", "opening"):
        peer = Peer(broker=broker)
        peer.say({"header": b"", "sasl": SASL_HEADER, "opening": AMQP_HEADER}[name])
        return peer
    peer = Peer.opened(broker=broker)
    if name == "opened":
        return peer
    peer.begin()
    if name in ("linked", "declared"):
        peer.sender(0)
        peer.receiver(1, credit=1)
        broker.offer("q", b"one", b"two")
        assert names(peer.hear()) == ["transfer"]
    if name == "declared":
        peer.sender(2, target=Coordinator())
        assert told_by(peer.say(peer.transfer(asked(Declare()), 2))) == ["receiver: 0 declared"]
    return peer


def told(peer: Peer, frames: list[Frame], case: dict[str, Any]) -> str:
    """Write answers as the corpus does."""
    words = []
    for one in frames:
        if one.name == "flow" and case.get("flows"):
            continue
        words.append(one.name)
        error = getattr(one.performative, "error", None)
        if error is not None:
            assert error.description, "a condition without a text"
            words.append(str(error.condition))
    if peer.gone and "close" not in words:
        words.append("cut")
    return " ".join(words or ["-"])


def runs_of_dispositions_as_one_each(frames: list[Frame]) -> list[Frame]:
    """Cut joined answers: how many deliveries one disposition covers is the reads' business."""
    found = []
    for one in frames:
        performative = one.performative
        count = 1
        if isinstance(performative, Disposition):
            last = performative.first if performative.last is None else performative.last
            count = last - performative.first + 1
        found += [one] * count
    return found


def converse(case: dict[str, Any], size: int) -> None:
    broker = ScriptedBroker()
    other = Bystander(broker)
    peer = state(case["state"], broker)
    before = len(broker.sent)
    data = raw(case["send"])
    came = peer.say(data, chunks=[size] * (len(data) // size))
    came += peer.sync()
    assert told(peer, runs_of_dispositions_as_one_each(came), case) == case["expect"]
    assert len(broker.sent) - before == case.get("sent", 0)
    if "text" in case:
        assert case["text"] in descriptions(came)
    other.goes_on()
    peer.engine.connection_lost(peer.now)
    assert peer.engine._unfinished == 0
    assert peer.engine.links == 0
    assert all(work.over for work in broker.works)
    other.leaves()
    assert len(broker.of("close producer")) == len(broker.of("open producer"))
    assert len(broker.of("close subscription")) == len(broker.of("subscribe"))
    assert broker.temporaries == set()


def descriptions(frames: list[Frame]) -> str:
    errors = [getattr(one.performative, "error", None) for one in frames]
    states = [d.state for d in of(frames, Disposition)]
    states = [s.outcome if isinstance(s, TransactionalState) else s for s in states]
    errors += [state.error for state in states if isinstance(state, Rejected)]
    return " ".join(error.description for error in errors if error is not None)


class Bystander:
    """Another connection of the same gateway, which sends to itself."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.peer = Peer.begun(broker=broker)
        self.peer.sender(0, "bystander")
        self.peer.receiver(1, "bystander", credit=100)
        self.goes_on()

    def goes_on(self) -> None:
        peer = self.peer
        before = len(peer.broker.sent)
        assert names(peer.send(b"mine")) == ["disposition"]
        assert peer.broker.sent[before][:2] == ("bystander", data_message(b"mine"))
        peer.broker.offer("bystander", b"mine")
        came = peer.hear()
        assert [one.payload for one in came] == [b"mine"]
        first = came[0].performative.delivery_id
        accept = Disposition(role=RECEIVER, first=first, settled=True, state=ACCEPTED)
        assert peer.tell(accept) == []

    def leaves(self) -> None:
        assert not self.peer.gone
        self.peer.engine.connection_lost(self.peer.now)


@pytest.mark.parametrize("case", cases())
def test_case(case):
    size = len(raw(case["send"]))
    converse(case, size + 1)
    converse(case, PIECE)
    if size <= BYTE_BY_BYTE_MAX:
        converse(case, 1)


@pytest.mark.parametrize("case", cases())
def test_what_waits_for_another_turn_has_the_same_outcome(
    monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.setattr(Peer, "hurried", True)
    converse(case, len(raw(case["send"])) + 1)
    converse(case, PIECE)


def test_ids_are_unique_and_names_say_something():
    found = [case.values[0] for case in cases()]
    ids = [case["id"] for case in found]
    assert len(ids) == len(set(ids)) >= 100
    assert all(case["name"] for case in found)


def test_notation():
    assert notation('0053 10["x"41 42]') == b"\x00\x53\x10\xc0\x04\x02x\x41\x42"
    assert notation("(3*ab){41 42}") == b"\xab\xab\xab\xc1\x03\x02\x41\x42"
    assert notation("[]") == b"\xc0\x01\x00"
    for wrong in ("[", "]", "[}", "abc", "xy"):
        with pytest.raises((AssertionError, IndexError)):
            notation(wrong)
