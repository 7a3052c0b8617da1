"""What the log says of addresses that become full, blocked or paging, and have room again."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.addresses.match import SettingsEntry, SettingsTable
from gateway.addresses.settings import FullPolicy
from gateway.broker import Limits
from gateway.broker.resettle import resettle
from gateway.config.tree import Config
from gateway.core.upkeep import chores
from gateway.logs.fullness import WINDOW_MS, FullTeller
from gateway.management.api import FULL_SHOWN_MAX, _full
from gateway.model.run import Run
from tests.broker.core import Core
from tests.conformance.test_disk import GIB, Site
from tests.gateway.reloading import Live, Start

LIMIT = 5
WHERE = "gate.toml:7"


def written(limit: int, where: str, policy: FullPolicy, match: str = "#") -> SettingsEntry:
    return SettingsEntry(
        match=match,
        values={"max_size_messages": limit, "address_full_policy": policy},
        origins={"max_size_messages": where},
    )


def config(where: str) -> Config:
    return Config(
        data_directory="d",
        journal_directory="d",
        paging_directory="d",
        users_file="u",
        origins={"global-max-size": where},
    )


class Watched:
    """A core whose fullness is looked at when the test says so."""

    def __init__(self, policy: FullPolicy = FullPolicy.BLOCK, **limits: int) -> None:
        self.core = Core(written(LIMIT, WHERE, policy), limits=Limits(**limits))
        self.config = config("gate.toml:1")
        self.teller = FullTeller(self.core.gateway, lambda: self.config)

    def fill(self, name: str = "q") -> None:
        producer, _ = self.core.producer(name)
        for _ in range(LIMIT):
            producer.send(Run([b"x" * 100], 0))
        self.core.turn()

    def empty(self, name: str = "q") -> None:
        taker = self.core.consume(name, room=100)
        self.core.turn()
        while taker.got:
            taker.ack()
            self.core.sync()
            taker.take(100)
            self.core.turn()
        taker.leave()
        self.core.turn()

    def look(self, after_ms: int = 1000) -> list[dict[str, Any]]:
        self.core.now += after_ms
        with capture_logs() as told:
            self.teller.look()
        return [dict(line) for line in told]


def names(told: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in told]


@pytest.mark.parametrize(
    ("policy", "began", "ended"),
    [
        (FullPolicy.BLOCK, "address.full", "address.room_again"),
        (FullPolicy.FAIL, "address.full", "address.room_again"),
        (FullPolicy.DROP, "address.full", "address.room_again"),
        (FullPolicy.PAGE, "address.paging_started", "address.paging_ended"),
    ],
)
def test_each_edge_is_one_event_with_limit_value_and_origin(policy, began, ended):
    watched = Watched(policy)
    watched.fill()
    watched.core.send("q", b"x") if policy is FullPolicy.PAGE else None
    (line,) = watched.look()
    assert line["event"] == began
    assert (line["address"], line["key"], line["limit"]) == ("q", "max-size-messages", LIMIT)
    assert line["value"] >= LIMIT
    assert (line["origin"], line["policy"]) == (WHERE, policy.value)
    assert watched.look() == []
    watched.empty()
    (line,) = watched.look()
    assert (line["event"], line["limit"], line["value"]) == (ended, LIMIT, 0)
    assert line["origin"] == WHERE
    assert watched.look() == []


def test_a_limit_of_the_gateway_is_told_once_and_not_by_address():
    watched = Watched(global_max_size=1500)
    for name in ("a", "b"):
        watched.core.send(name, b"x" * 500, b"x" * 500)
    (line,) = watched.look()
    assert line["event"] == "gateway.full"
    assert (line["key"], line["limit"], line["origin"]) == ("global-max-size", 1500, "gate.toml:1")
    watched.config = config("gate.toml:9")
    watched.empty("a")
    watched.empty("b")
    (line,) = watched.look()
    assert (line["event"], line["origin"]) == ("gateway.room_again", "gate.toml:9")


def test_a_block_and_its_end_are_told_with_who_did_it():
    watched = Watched()
    watched.core.directory.make_address("q")
    watched.core.gateway.block_address("q", True)
    (line,) = watched.look()
    assert (line["event"], line["address"], line["origin"]) == ("address.blocked", "q", "operator")
    watched.core.gateway.block_address("q", False)
    assert names(watched.look()) == ["address.unblocked"]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("policy", [FullPolicy.BLOCK, FullPolicy.PAGE])
def test_what_flaps_is_told_of_a_few_times_and_the_rest_is_counted(policy, seen):
    """`seen`: each time it is full when it is looked at, else it never is."""
    watched = Watched(policy)
    told, flaps, looks = [], 0, 4 * WINDOW_MS // 1000
    for _ in range(looks):
        for _ in range(3):
            watched.fill()
            watched.core.send("q", b"x") if policy is FullPolicy.PAGE else None
            flaps += 1
            told += watched.look(0) if seen else []
            watched.empty()
        told += watched.look()
    told += watched.look(WINDOW_MS)
    assert len(told) <= 2 + 5
    begun = sum(line["event"] in ("address.full", "address.paging_started") for line in told[:1])
    assert begun + sum(line.get("suppressed", 0) for line in told) == flaps
    assert told[-1]["event"] in ("address.room_again", "address.paging_ended")
    assert watched.look(WINDOW_MS) == []


def test_one_that_is_full_at_the_end_of_what_was_left_out_is_told_to_be():
    watched = Watched()
    watched.fill()
    assert names(watched.look()) == ["address.full"]
    watched.empty()
    assert names(watched.look()) == ["address.room_again"]
    watched.fill()
    assert watched.look() == []
    (line,) = watched.look(WINDOW_MS)
    assert (line["event"], line["suppressed"]) == ("address.full", 1)
    watched.empty()
    assert names(watched.look()) == ["address.room_again"]


def test_room_made_by_other_settings_is_told_with_these():
    watched = Watched()
    watched.fill()
    assert names(watched.look()) == ["address.full"]
    other = SettingsTable([written(100, "gate.toml:12", FullPolicy.BLOCK)])
    for _ in resettle(watched.core.gateway, other, Limits()):
        pass
    watched.core.turn()
    (line,) = watched.look()
    assert line["event"] == "address.room_again"
    assert (line["limit"], line["value"], line["origin"]) == (100, LIMIT, "gate.toml:12")


def test_the_probe_names_a_bounded_number_with_totals():
    watched = Watched()
    count = FULL_SHOWN_MAX + 5
    for number in range(count):
        watched.fill(f"q{number:03}")
    watched.look()
    told = _full(watched.core.gateway.pressure.fullness)
    assert told["fullCount"] == count
    shown = told["full"]
    assert isinstance(shown, list)
    assert [one["address"] for one in shown] == [f"q{n:03}" for n in range(FULL_SHOWN_MAX)]
    paged = Watched(FullPolicy.PAGE)
    for number in range(count):
        paged.fill(f"q{number:03}")
        paged.core.send(f"q{number:03}", b"x")
    paged.look()
    told = _full(paged.core.gateway.pressure.fullness)
    assert told == {
        "paging": [f"q{n:03}" for n in range(FULL_SHOWN_MAX)],
        "pagingCount": count,
    }


SET = '\n\n[address-settings."#"]\nmax-size-messages = {}\naddress-full-policy = "{}"\n'


@pytest.mark.parametrize(
    ("policy", "event"), [("BLOCK", "address.full"), ("PAGE", "address.paging_started")]
)
def test_after_a_reload_the_origin_is_where_it_is_written_now(
    gateway_process: Start, tmp_path: Path, policy: str, event: str
) -> None:
    live = Live(gateway_process, tmp_path, "")
    live.reload("\n\n" + SET.format(3, policy))
    with socket.create_connection(("127.0.0.1", live.gateway.port)) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        peer.sendall(b"SEND\ndestination:q\n\nx\0" * 4)
        (line,) = live.wait_log(event)
        assert (line["key"], line["limit"]) == ("max-size-messages", 3)
        assert line["origin"].endswith("gate.toml:6")


def test_a_full_disk_and_its_end_are_told_with_where_the_limit_is_written():
    site = Site(max_usage=90.0)
    origins = {"max-disk-usage": "gate.toml:3"}
    read = [replace(config(""), origins=origins), replace(config(""), origins={})]
    chores(site.core.gateway, site.watch, lambda: read[0], lambda action: action())
    with capture_logs() as told:
        site.scan(GIB)
        read.pop(0)
        site.scan(50 * GIB)
    assert [(line["event"], line["limit"], line["origin"]) for line in told] == [
        ("disk.filled", "max-disk-usage is 90 %", "gate.toml:3"),
        ("disk.freed", "max-disk-usage is 90 %", "default"),
    ]
