"""Tabs that nobody looks at for two minutes: their timers hardly run, their connections stay.

Chromium runs the timers of a tab in the background once a minute, and those of a frozen one not at
all; so the heart-beats that stompjs owes come late or never. The browser itself answers a Ping.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.interop.browser import has_browser
from tests.interop.support import wait_until
from tests.interop.tabs import Browser, Tab, page_server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    # A worker of its own: it waits for two minutes, while others work.
    pytest.mark.xdist_group("chromium-idle"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not has_browser(), reason="no Chromium here (Debian: apt-get install chromium)"
    ),
]

IDLE_SECONDS = 120.0
#: What a page asks for: a heart-beat each second, both ways.
BEAT_MS = 1000


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with page_server() as port:
        one = Browser(tmp_path / "profile", port, throttled=True)
        yield one
        one.end()


def connections(gateway: ScratchGateway) -> dict[str, Any]:
    """Return the STOMP connections by id."""
    status, listed = gateway.request("GET", "/api/v1/connections?protocol=stomp")
    assert status == 200
    assert isinstance(listed, dict)
    return {one["id"]: one for one in listed["items"]}


def begin(tab: Tab, gateway: ScratchGateway, name: str) -> None:
    tab.run("stomp", url=f"ws://{HOST}:{gateway.port}/ws", beat=BEAT_MS, source=name, ack="auto")
    tab.wait(lambda seen: seen["connects"])
    tab.run("tick")


def test_tabs_without_timers_stay_connected_for_two_minutes(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        ScratchGateway(tmp_path / "gateway") as gateway,
        browser.open() as slow,
        browser.open() as frozen,
        browser.open() as front,
    ):
        begin(slow, gateway, "slow")
        begin(frozen, gateway, "frozen")
        before = connections(gateway)
        assert len(before) == 2
        front.front()
        assert slow.wait(lambda seen: seen["visible"] == "hidden")["connects"] == 1
        frozen.freeze()
        ticked = len(slow.seen["ticks"])
        time.sleep(IDLE_SECONDS)
        after = slow.seen
        print(after, ticked)
        # A timer of a second ran about once a minute once the time of grace was over.
        assert connections(gateway).keys() == before.keys()
        peer = StompPeer(gateway.stomp_port)
        for name in ("slow", "frozen"):
            peer.send(name, b"still there?", receipt=name)
            assert peer.read()[0] == "RECEIPT"
        frozen.thaw()
        print(frozen.seen)
        for tab in (slow, frozen):
            seen = tab.wait(lambda seen: seen["messages"])
            assert (seen["connects"], seen["closes"], seen["errors"]) == (1, [], [])
