"""`sluicegate scrub` and its API on running gateways whose files rot under them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Message, Timeout, symbol
from proton.utils import BlockingConnection

from gateway.store.datadir import look
from gateway.trial.scratch import HOST, ScratchGateway, importing_environment
from tests.cli.test_data import change, cli, journal_files, send, take
from tests.durability.rounds import AmqpReceiver, StompSender
from tests.logs import whole_log

Start = Callable[..., ScratchGateway]
SMALL = ("journal-file-size=1MiB",)


def command(gateway: ScratchGateway, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", "scrub", *arguments, "--url", gateway.url]


def scrub(gateway: ScratchGateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(gateway, *arguments),
        capture_output=True, text=True, timeout=60, check=False, env=importing_environment(),
    )  # fmt: skip


def facts_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode in (0, 1), done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def until_gone(gateway: ScratchGateway) -> dict[str, Any]:
    """Return what the scrub says when nothing is damaged any more, or after ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        status, facts = gateway.request("GET", "/api/v1/scrub")
        assert status == 200
        assert isinstance(facts, dict)
        if not facts["damage"] or time.monotonic() > deadline:
            return facts
        time.sleep(0.1)


def metric(gateway: ScratchGateway, name: str) -> float:
    peer = http.client.HTTPConnection(HOST, gateway.management_port, timeout=10)
    peer.request("GET", "/metrics")
    text = peer.getresponse().read().decode()
    peer.close()
    (line,) = [line for line in text.splitlines() if line.startswith(f"sluicegate_{name} ")]
    return float(line.split(" ")[1])


def test_sound_files_are_whole(gateway_process: Start) -> None:
    gateway = gateway_process(settings=SMALL)
    send(gateway, "q", ["x" * 3000] * 600)
    shown = scrub(gateway, "--status")
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (
        0, "nothing was read since the start",
    )  # fmt: skip
    done = scrub(gateway, "--watch")
    assert done.returncode == 0
    assert done.stdout.startswith(f"read {len(journal_files(gateway))} files, ")
    assert done.stdout.endswith("nothing is damaged\n")
    facts = facts_of(scrub(gateway, "--status", "--json"))
    assert facts["runs"] == 1
    assert metric(gateway, "scrub_runs_total") == 1
    assert metric(gateway, "scrub_read_bytes_total") == facts["bytesRead"] > 1_800_000


def test_rot_in_journal_files_is_repaired_from_memory(gateway_process: Start) -> None:
    """In a sealed file and in the one that is written; a message is with a consumer meanwhile."""
    gateway = gateway_process(settings=SMALL)
    bodies = [f"message {n:03d} " + "x" * 3000 for n in range(500)]
    send(gateway, "q", bodies)
    first, newest = journal_files(gateway)
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    receiver = connection.create_receiver("q", credit=5)
    held = [receiver.receive(timeout=10).body for _ in range(5)]
    assert held == bodies[:5]
    for text in (b"message 003", b"message 077"):
        change(first, text)
    change(newest, b"message 499 xxx")
    rotten = first.read_bytes()

    done = scrub(gateway, "--watch", "--full-speed")
    assert "damaged: " in done.stdout, done.stdout
    facts = until_waiting(gateway)
    (one,) = [one for one in facts["damage"] if one["what"] == "batch 4 is not what was written"]
    assert one["affected"] == [{"name": "q", "messagesAtMost": 1}] or facts["messagesWaitedFor"]
    assert facts["messagesWaitedFor"] == 1, "the one with the consumer"
    assert facts["messagesTakenFromMemory"] >= 1
    _, ready = gateway.request("GET", "/readyz")
    assert isinstance(ready, dict)
    assert ready["status"] == "ready"
    assert "not what was written" in ready["damage"]
    assert metric(gateway, "scrub_damaged_places") >= 1
    assert whole_log(gateway).count('"event": "scrub.damaged"') == 3

    connection.close()  # what it held comes back
    facts = until_gone(gateway)
    assert facts["damage"] == []
    assert len(facts["gone"]) == 3
    assert gateway.request("GET", "/readyz")[1] == {"status": "ready"}
    assert metric(gateway, "scrub_damage_gone_total") == 3
    assert not first.exists()
    copies = sorted(path.name for path in (gateway.data / "quarantine").iterdir())
    assert copies == [first.name, newest.name]
    assert (gateway.data / "quarantine" / first.name).read_bytes() == rotten
    assert facts_of(scrub(gateway, "--watch", "--json"))["damage"] == []
    gateway.kill()
    assert cli("verify", str(gateway.data)).returncode == 0
    gateway.start()
    assert take(gateway, "q") == bodies


def until_waiting(gateway: ScratchGateway) -> dict[str, Any]:
    """Return what the scrub says when all but what consumers hold is repaired."""
    deadline = time.monotonic() + 10
    while True:
        facts = gateway.request("GET", "/api/v1/scrub")[1]
        assert isinstance(facts, dict)
        if facts["messagesWaitedFor"] == 1 or time.monotonic() > deadline:
            return facts
        time.sleep(0.1)


def test_without_the_scrub_the_next_start_would_have_refused(gateway_process: Start) -> None:
    gateway = gateway_process(settings=SMALL)
    send(gateway, "q", [f"message {n:03d} " + "x" * 3000 for n in range(400)])
    change(journal_files(gateway)[0], b"message 077")
    gateway.kill()
    with pytest.raises(Exception, match="status 74"):
        gateway.start()


def test_what_repairs_does_not_take_back_what_was_consumed(gateway_process: Start) -> None:
    gateway = gateway_process(settings=SMALL)
    bodies = [f"message {n:03d} " + "x" * 3000 for n in range(400)]
    send(gateway, "q", bodies)
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    receiver = connection.create_receiver("q", credit=1)
    for _ in range(100):
        receiver.receive(timeout=10)
        receiver.accept()
    first = journal_files(gateway)[0]
    change(first, b"message 050")
    change(first, b"message 150")
    scrub(gateway, "--full-speed")
    for _ in range(50):
        receiver.receive(timeout=10)
        receiver.accept()
    connection.close()
    assert until_gone(gateway)["damage"] == []
    gateway.kill()
    gateway.start()
    assert take(gateway, "q") == bodies[150:]


def test_rot_on_pages_and_in_streams_is_told_with_whom_it_concerns(
    gateway_process: Start,
) -> None:
    settings = (
        *SMALL,
        'address-settings."paged".max-size-messages=2',
        'streams.tap.address="tapped"',
    )
    gateway = gateway_process(settings=settings)
    send(gateway, "paged", [f"paged {n:02d} " * 200 for n in range(40)])
    send(gateway, "tapped", [f"tapped {n:02d} " * 20 for n in range(30)])
    assert gateway.stop() == 0
    gateway.start()
    (page,) = (gateway.data / "paging").glob("*.page")
    (arrows,) = (gateway.data / "streams").glob("*/*.arrows")
    assert facts_of(scrub(gateway, "--watch", "--json"))["damage"] == []
    change(page, b"paged 20 paged 20")
    change(arrows, b"tapped 07 tapped 07")
    done = scrub(gateway, "--watch")
    assert done.returncode == 1
    for text in (str(page), str(arrows), "concerns stream tap: at most 30 messages", "what to do"):
        assert text in done.stdout, text
    facts = facts_of(scrub(gateway, "--status", "--json"))
    (paged,) = [one for one in facts["damage"] if one["kind"] == "page"]
    (who,) = paged["affected"]
    assert who["name"] == "paged"
    assert 1 <= who["messagesAtMost"] < 38
    assert Path(paged["copy"]).read_bytes() == page.read_bytes()
    (streamed,) = [one for one in facts["damage"] if one["kind"] == "stream"]
    assert Path(streamed["copy"]).read_bytes() == arrows.read_bytes()
    got = take_until_empty(gateway, "paged")
    assert 40 - who["messagesAtMost"] <= len(got) < 40
    facts = facts_of(scrub(gateway, "--status", "--json"))
    deadline = time.monotonic() + 10
    while len(facts["damage"]) > 1 and time.monotonic() < deadline:
        facts = facts_of(scrub(gateway, "--status", "--json"))
    assert [one["kind"] for one in facts["damage"]] == ["stream"], "the page is gone"


def take_until_empty(gateway: ScratchGateway, queue: str) -> list[str]:
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    receiver = connection.create_receiver(queue, credit=100)
    bodies = []
    while True:
        _, shown = gateway.request("GET", f"/api/v1/queues/{queue}")
        assert isinstance(shown, dict)
        if not shown["messageCount"]:
            break
        with contextlib.suppress(Timeout):
            bodies.append(receiver.receive(timeout=1).body)
            receiver.accept()
    connection.close()
    return bodies


def test_on_a_terminal_there_is_a_bar(gateway_process: Start) -> None:
    gateway = gateway_process(settings=[*SMALL, "scrub-rate=500KiB"])
    send(gateway, "q", ["x" * 3000] * 300)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        command(gateway, "--watch"), stdout=subprocess.PIPE, stderr=child, text=True,
        env=importing_environment() | {"TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(parent, 65536):
            shown += part
    out, _ = process.communicate(timeout=30)
    os.close(parent)
    assert process.returncode == 0
    assert b"reading" in shown
    assert b"/" in shown
    assert out.endswith("nothing is damaged\n")


def test_the_call_answers_at_once_and_says_where_to_look(gateway_process: Start) -> None:
    gateway = gateway_process(settings=[*SMALL, "scrub-rate=64KiB"])
    send(gateway, "q", ["x" * 3000] * 300)
    status, facts = gateway.request("POST", "/api/v1/scrub", {})
    assert status == 202
    assert isinstance(facts, dict)
    assert facts["running"]
    assert facts["run"]["fullSpeed"] is False
    assert facts["rateBytesPerSecond"] == 65536
    line = scrub(gateway, "--status").stdout
    assert "s to go; `sluicegate scrub --status` shows how far it is" in line
    for body in ({"fullspeed": True}, {"fullSpeed": 1}):
        assert gateway.request("POST", "/api/v1/scrub", body)[0] == 422
    status, facts = gateway.request("POST", "/api/v1/scrub", {"fullSpeed": True})
    assert status == 202
    deadline = time.monotonic() + 10
    while facts["running"] and time.monotonic() < deadline:
        time.sleep(0.05)
        facts = gateway.request("GET", "/api/v1/scrub")[1]
    assert facts["runs"] == 1


def test_a_gateway_stops_in_the_middle_of_it(gateway_process: Start) -> None:
    gateway = gateway_process(settings=[*SMALL, "scrub-rate=64KiB"])
    send(gateway, "q", ["x" * 3000] * 300)
    scrub(gateway)
    begun = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - begun < 8


def rot_every_batch(path: Path) -> int:
    """Turn a bit in each batch of a journal file; returns how many there are."""
    (facts,) = [one for one in look(str(path.parent)).segments if one.path == str(path)]
    content = bytearray(path.read_bytes())
    for _, offset, payload in facts.batches:
        content[offset + 36 + len(payload) // 2] ^= 1
    path.write_bytes(content)
    return len(facts.batches)


@pytest.mark.timeout(90)
def test_all_kinds_of_what_is_stored_come_back_from_memory(gateway_process: Start) -> None:
    """Last values, kept and scheduled messages, groups, duplicate ids, a stream's tail."""
    settings = (
        *SMALL,
        'address-settings."last".default-last-value-key="key"',
        'address-settings."kept".default-non-destructive=true',
        'streams.tap.address="tapped"',
    )
    gateway = gateway_process(settings=settings)
    later = int(time.time() * 1000) + 3_600_000
    wanted = {
        "last": [Message(body=f"l{n}", properties={"key": n % 7}) for n in range(40)],
        "kept": [Message(body=f"k{n}") for n in range(20)],
        "timed": [Message(body=f"t{n}", expiry_time=later / 1000) for n in range(9)],
        "late": [Message(body=f"s{n}", annotations={symbol("x-opt-delivery-time"): later + n})
                 for n in range(12)],
        "groups": [Message(body=f"g{n}", group_id=f"group{n % 3}") for n in range(15)],
        "once": [Message(body=f"o{n}", properties={"_AMQ_DUPL_ID": f"id {n}"}) for n in range(30)],
        "tapped": [Message(body=f"s{n}") for n in range(25)],
        "bulk": [Message(body="x" * 60_000) for _ in range(20)],
    }  # fmt: skip
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    for address, messages in wanted.items():
        sender = connection.create_sender(address)
        for message in messages:
            message.durable = True
            sender.send(message)
    before = counts_of(gateway)
    assert before["last"] == 7
    assert before["late"] == 12
    first, *_ = journal_files(gateway)
    assert rot_every_batch(first) > 100
    assert scrub(gateway, "--watch", "--full-speed").returncode in (0, 1)
    deadline = time.monotonic() + 40
    while until_gone(gateway)["damage"] and time.monotonic() < deadline:
        time.sleep(0.5)  # the tail of a stream goes to its own files after ten seconds
    assert until_gone(gateway)["damage"] == []
    assert counts_of(gateway) == before
    gateway.kill()
    assert cli("verify", str(gateway.data)).returncode == 0
    gateway.start()
    assert counts_of(gateway) == before
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    sender = connection.create_sender("once")
    for message in wanted["once"]:
        sender.send(message)
    connection.close()
    assert counts_of(gateway) == before, "their ids are known"
    assert sorted(take(gateway, "once")) == sorted(m.body for m in wanted["once"])
    assert take(gateway, "groups") == [m.body for m in wanted["groups"]]
    assert take(gateway, "timed") == [m.body for m in wanted["timed"]]
    _, shown = gateway.request("GET", "/api/v1/streams/tap")
    assert isinstance(shown, dict)
    assert shown["head"] == 25


def counts_of(gateway: ScratchGateway) -> dict[str, int]:
    _, queues = gateway.request("GET", "/api/v1/queues")
    assert isinstance(queues, dict)
    return {one["name"]: one["messageCount"] for one in queues["items"]}


@pytest.mark.timeout(60)
def test_beside_senders_receivers_and_paging_nothing_is_mistaken(gateway_process: Start) -> None:
    """Files grow, roll, are emptied, used again and deleted while all of them are read."""
    gateway = gateway_process(settings=[*SMALL, 'address-settings."#".max-size-messages=2000'])
    senders = [StompSender(gateway.stomp_port, f"s{n}", padding=1500) for n in range(2)]
    receiver = AmqpReceiver(gateway.port)
    for one in (*senders, receiver):
        one.start()
    deadline = time.monotonic() + 8
    runs = 0
    while time.monotonic() < deadline:
        facts = gateway.request("POST", "/api/v1/scrub", {"fullSpeed": True})[1]
        assert isinstance(facts, dict)
        while facts["running"]:
            time.sleep(0.02)
            facts = gateway.request("GET", "/api/v1/scrub")[1]
        runs = facts["runs"]
        assert (facts["damage"], facts["gone"]) == ([], [])
        assert facts["run"]["damagedPlaces"] == 0
    assert runs > 5
    assert facts["bytesRead"] > 20 << 20
    log = whole_log(gateway)
    assert "address.paging_started" in log
    assert "scrub.failed" not in log
    gateway.kill()  # senders and receiver end with it
