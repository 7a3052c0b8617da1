"""`sluicegate data` and `run --salvage` as processes, beside a running gateway and after damage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment
from tests.logs import records, whole_log

Start = Callable[..., ScratchGateway]


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "data", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=importing_environment(),
    )  # fmt: skip


def send(gateway: ScratchGateway, queue: str, bodies: list[str]) -> None:
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    connection.close()


def take(gateway: ScratchGateway, queue: str) -> list[str]:
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    receiver = connection.create_receiver(queue, credit=100)
    _, shown = gateway.request("GET", f"/api/v1/queues/{queue}")
    assert isinstance(shown, dict)
    bodies = []
    for _ in range(int(shown["messageCount"])):
        bodies.append(receiver.receive(timeout=10).body)
        receiver.accept()
    connection.close()
    return bodies


def journal_files(gateway: ScratchGateway) -> list[Path]:
    return sorted((gateway.data / "journal").glob("0*.journal"))


def change(path: Path, text: bytes) -> int:
    """Turn one bit where `text` is; returns its offset."""
    content = bytearray(path.read_bytes())
    place = content.index(text)
    content[place] ^= 1
    path.write_bytes(content)
    return place


def test_verify_and_print_work_beside_a_gateway_and_compact_refuses(
    gateway_process: Start,
) -> None:
    gateway = gateway_process()
    send(gateway, "orders", [f"order {n}" for n in range(7)])
    data = str(gateway.data)
    before = journal_files(gateway)
    done = cli("verify", data)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^queue orders: 7 messages, \d+ B$", done.stdout, re.MULTILINE)
    assert f"in use by process {gateway.pid} " in done.stdout
    assert done.stdout.endswith("whole\n")
    printed = cli("print", data, "--queue", "orders")
    assert printed.returncode == 0, printed.stderr
    assert sum(" add " in line for line in printed.stdout.splitlines()) == 7
    refused = cli("compact", data)
    assert refused.returncode == 75
    assert f"process {gateway.pid} " in refused.stderr
    assert journal_files(gateway) == before
    send(gateway, "orders", ["one more"])
    assert len(take(gateway, "orders")) == 8


def test_print_for_a_reader_who_has_left_is_141(gateway_process: Start) -> None:
    gateway = gateway_process()
    send(gateway, "orders", ["an order"])
    printing = f"{sys.executable} -m gateway data print {gateway.data}"
    # `true` has left before anything is written.
    done = subprocess.run(
        ["sh", "-c", f"{{ sleep 1; {printing}; echo status $? >&2; }} | true"],
        capture_output=True, text=True, timeout=60, check=False, env=importing_environment(),
    )  # fmt: skip
    assert done.stderr == "status 141\n"


def test_compact_leaves_one_file_and_all_messages(gateway_process: Start) -> None:
    small = "journal-file-size=1MiB"
    gateway = gateway_process(settings=[small, "journal-compact-min-files=0"])
    send(gateway, "old", ["old one"])
    for _ in range(3):
        send(gateway, "big", ["x" * 700_000])
        assert len(take(gateway, "big")) == 1
    assert gateway.stop() == 0
    assert len(journal_files(gateway)) > 2
    done = cli("compact", str(gateway.data), "--file-size", str(1 << 20))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("1 messages\n")
    assert len(journal_files(gateway)) <= 2
    assert cli("verify", str(gateway.data)).returncode == 0
    gateway.start()
    assert take(gateway, "old") == ["old one"]
    assert gateway.stop() == 0


def allocated(gateway: ScratchGateway) -> int:
    """Return what the data directory takes on the disk, in bytes."""
    return sum(one.stat().st_blocks * 512 for one in gateway.data.rglob("*") if one.is_file())


@pytest.mark.parametrize("killed", [False, True])
def test_compact_again_and_again_shrinks_to_what_lives_and_never_grows(
    gateway_process: Start,
    killed: bool,
) -> None:
    gateway = gateway_process(settings=["journal-file-size=1MiB", "ballast-size=4MiB"])
    send(gateway, "old", [f"old {n}" for n in range(10)])
    for _ in range(5):
        send(gateway, "big", ["x" * 700_000])
        assert len(take(gateway, "big")) == 1
    send(gateway, "old", ["last"])  # confirmed: what was taken before it is gone for good
    for life in range(2):
        if killed:
            gateway.kill()
        else:
            assert gateway.stop() == 0
        running = allocated(gateway)
        assert running > 4 << 20
        sizes = []
        for _ in range(4):
            done = cli("compact", str(gateway.data), "--file-size", str(1 << 20))
            assert done.returncode == 0, done.stderr
            assert done.stdout.endswith(f" {11 + life} messages\n")
            sizes.append(allocated(gateway))
            assert cli("verify", str(gateway.data)).returncode == 0
        freed = int(re.findall(r"(\d+) B of the disk", done.stdout)[0])
        assert freed == 0
        # Some short messages, definitions, a lock: a few blocks, not a file made ahead.
        assert max(sizes) <= 64 << 10, sizes
        assert sizes[1:] == sizes[1:2] * 3
        gateway.start()
        send(gateway, "old", [f"new {life}"])
    assert take(gateway, "old") == [*(f"old {n}" for n in range(10)), "last", "new 0", "new 1"]
    assert gateway.stop() == 0


def known(*names: str) -> list[Message]:
    return [Message(body=n, durable=True, properties={"_AMQ_DUPL_ID": n}) for n in names]


def test_duplicate_ids_are_told_and_survive_compaction(gateway_process: Start) -> None:
    small = "journal-file-size=1MiB"
    gateway = gateway_process(settings=[small, "journal-compact-min-files=0", "id-cache-size=3"])
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    sender = connection.create_sender("orders")
    for message in known("1", "2", "3", "4"):
        sender.send(message)
    connection.close()
    for _ in range(3):
        send(gateway, "big", ["x" * 700_000])
        assert len(take(gateway, "big")) == 1
    assert len(take(gateway, "orders")) == 4
    assert gateway.stop() == 0
    data = str(gateway.data)
    assert json.loads(cli("verify", data, "--json").stdout)["duplicateIds"] == {"orders": 3}
    assert "address orders: 3 duplicate ids\n" in cli("verify", data).stdout
    printed = cli("print", data, "--queue", "duplicate ids of orders").stdout.splitlines()
    assert sum(" add " in line for line in printed) >= 3
    assert any(" remove " in line for line in printed)
    assert cli("compact", data, "--file-size", str(1 << 20)).returncode == 0
    assert len(journal_files(gateway)) <= 2
    assert json.loads(cli("verify", data, "--json").stdout)["duplicateIds"] == {"orders": 3}
    gateway.start()
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    sender = connection.create_sender("orders")
    for message in known("2", "3", "4", "1"):
        sender.send(message)
    connection.close()
    assert take(gateway, "orders") == ["1"]
    assert gateway.stop() == 0


def copied(gateway: ScratchGateway) -> int:
    _, store = gateway.request("GET", "/api/v1/store")
    assert isinstance(store, dict)
    return int(store["journal"]["compaction"]["copiedMessages"])


def test_a_gateway_compacts_while_it_runs(gateway_process: Start) -> None:
    gateway = gateway_process(settings=["journal-file-size=1MiB"])
    send(gateway, "old", ["old one"])
    for _ in range(6):
        send(gateway, "big", ["x" * 700_000])
        assert len(take(gateway, "big")) == 1
    deadline = time.monotonic() + 20
    while len(journal_files(gateway)) > 3 or not copied(gateway):  # beside what clients do
        assert time.monotonic() < deadline, journal_files(gateway)
        time.sleep(0.05)
    gateway.kill()
    gateway.start()
    assert take(gateway, "old") == ["old one"]


def test_salvage_keeps_what_is_whole_and_tells_what_is_lost(gateway_process: Start) -> None:
    gateway = gateway_process()
    send(gateway, "orders", [f"order {n} " * 20 for n in range(10)])
    send(gateway, "others", ["other"])
    gateway.kill()
    (path,) = journal_files(gateway)
    place = change(path, b"order 4 order 4")
    damaged = path.read_bytes()

    found = cli("verify", str(gateway.data))
    assert found.returncode == 1
    offset = re.search(rf"damage {path} at offset (\d+): batch \d+ cannot be read", found.stdout)
    assert offset is not None
    assert 0 < place - int(offset[1]) < 300
    assert "lost orders: at most 1 messages" in found.stdout
    as_json = json.loads(cli("verify", str(gateway.data), "--json").stdout)
    assert as_json["lost"] == {"orders": 1}
    assert as_json["queues"]["others"]["messages"] == 1
    assert path.read_bytes() == damaged
    assert cli("compact", str(gateway.data)).returncode == 74

    with pytest.raises(Exception, match="status 74"):
        gateway.start()
    salvaging = ScratchGateway(gateway.data.parent)
    command = [*salvaging.command(), "--salvage"]
    salvaging.command = lambda: command  # type: ignore[method-assign]
    with salvaging:
        log = whole_log(salvaging)
        assert f"salvaged: {path} at offset {offset[1]}" in log
        assert "lost: at most 1 messages of orders" in log
        (kept,) = (gateway.data / "quarantine").iterdir()
        assert kept.read_bytes() == damaged
        assert take(salvaging, "orders") == [f"order {n} " * 20 for n in range(10) if n != 4]
        assert take(salvaging, "others") == ["other"]
    whole = cli("verify", str(gateway.data), "--json")
    assert whole.returncode == 0
    after = json.loads(whole.stdout)
    assert (after["damage"], after["lost"]) == ([], {})
    # All that was taken is gone, and the next start finds nothing that is wrong.
    assert {name: one["messages"] for name, one in after["queues"].items()} == {
        "orders": 0,
        "others": 0,
    }
    with ScratchGateway(gateway.data.parent) as second:
        whole_log(second)
        found = records(second, "store.recovered")[-1]
        assert (found["clean"], found["torn_bytes"], found["messages"]) == (True, 0, 0)


def test_salvage_counts_are_exact_by_queue(gateway_process: Start) -> None:
    """What verify says before, what salvage says, and what is missing afterwards are one figure."""
    gateway = gateway_process()
    names = {"orders": 12, "others": 9, "third": 5}
    for name, count in names.items():
        send(gateway, name, [f"{name} {n:02d} " * 20 for n in range(count)])
    gateway.kill()
    (path,) = journal_files(gateway)
    # The first message of a queue shares its batch with the queue's definition.
    for text in (b"orders 03 orders", b"orders 07 orders", b"others 00 others"):
        change(path, text)
    before = json.loads(cli("verify", str(gateway.data), "--json").stdout)
    (nameless,) = before["lost"].keys() - {"orders"}
    assert nameless.startswith("salvaged.")
    assert before["lost"] == {"orders": 2, nameless: 1}
    held = {name: one["messages"] for name, one in before["queues"].items()}
    assert held == {"orders": 10, nameless: 8, "third": 5}
    salvaging = ScratchGateway(gateway.data.parent)
    command = [*salvaging.command(), "--salvage"]
    salvaging.command = lambda: command  # type: ignore[method-assign]
    with salvaging:
        log = whole_log(salvaging)
        assert "lost: at most 2 messages of orders" in log
        assert f"lost: at most 1 messages of {nameless}" in log
        assert log.count("queue.adopted") == 1
        send(salvaging, "fourth", ["takes no number that is in use"])
    after = json.loads(cli("verify", str(gateway.data), "--json").stdout)
    counts = {name: one["messages"] for name, one in after["queues"].items()}
    assert counts == held | {"fourth": 1}
    assert after["damage"] == []
    lost = {"orders": {3, 7}, nameless: {0}, "third": set()}
    names[nameless] = names.pop("others")
    with ScratchGateway(gateway.data.parent) as second:
        assert whole_log(second).count("queue.adopted") == 1
        for name, count in names.items():
            text = "others" if name == nameless else name
            wanted = [f"{text} {n:02d} " * 20 for n in range(count) if n not in lost[name]]
            assert take(second, name) == wanted
        assert take(second, "fourth") == ["takes no number that is in use"]


def test_verify_looks_where_the_configuration_has_journal_and_pages(
    gateway_process: Start, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    places = (f'journal-directory="{elsewhere}/j"', f'paging-directory="{elsewhere}/p"')
    small = ('address-settings."#".max-size-messages=2',)
    gateway = gateway_process(settings=(*places, *small))
    send(gateway, "orders", [f"order {n} " * 20 for n in range(10)])
    assert gateway.stop() == 0
    data = str(gateway.data)
    assert cli("verify", data).returncode == 66  # there is no journal below it
    told = [part for one in places for part in ("--set", one)]
    done = cli("verify", data, *told)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"page {elsewhere}/p/" in done.stdout
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(places) + "\n")
    (page,) = (elsewhere / "p").glob("*.page")
    change(page, b"order 5 order 5")
    bad = cli("verify", data, "-c", str(file))
    assert bad.returncode == 1
    assert f"page {page} of orders" in bad.stdout
    assert "1 of 8 blocks are lost" in bad.stdout
    assert cli("print", data, "-c", str(file), "--queue", "orders").returncode == 0


def test_a_directory_without_a_journal_is_66(tmp_path: Path) -> None:
    for verb in ("verify", "print", "compact"):
        done = cli(verb, str(tmp_path))
        assert done.returncode == 66
        assert str(tmp_path) in done.stderr


def test_what_was_deleted_does_not_come_back_as_salvaged(gateway_process: Start) -> None:
    """The journal has its messages until their file goes, after a kill and after a clean stop."""
    gateway = gateway_process()
    send(gateway, "gone", ["1", "2"])
    send(gateway, "kept", ["3"])
    assert gateway.request("DELETE", "/api/v1/queues/gone")[0] == 204
    gateway.kill()
    held = json.loads(cli("verify", str(gateway.data), "--json").stdout)["queues"]
    assert {name: one["messages"] for name, one in held.items()} == {"kept": 1}
    for _ in range(2):
        with ScratchGateway(gateway.data.parent) as again:
            assert "queue.adopted" not in whole_log(again)
            _, shown = again.request("GET", "/api/v1/queues")
            assert [one["name"] for one in shown["items"]] == ["kept"]
