"""Tabs that nobody looks at for two minutes: their timers hardly run, their connections stay.

Chromium runs the timers of a tab in the background once a minute, and those of a frozen one not at
all; so the heart-beats that stompjs owes come late, or never. The browser itself answers a Ping,
and a Pong is life to the gateway.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.interop.browser import has_browser
from tests.interop.support import queue, wait_until
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

IDLE_MS = 120_000
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
    """Connect with heart-beats and a timer that counts."""
    tab.run("stomp", url=f"ws://{HOST}:{gateway.port}/ws", beat=BEAT_MS, source=name)
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
        for name, tab in (("slow", slow), ("frozen", frozen)):
            begin(tab, gateway, name)
        before = connections(gateway)
        assert len(before) == 2
        front.front()
        slow.wait(lambda seen: seen["visible"] == "hidden")
        began = frozen.seen["now"]
        frozen.freeze()
        heard = {name: one["bytesIn"] for name, one in connections(gateway).items()}
        time.sleep(IDLE_MS / 1000)

        after = connections(gateway)
        assert after.keys() == before.keys()
        assert all(after[name]["bytesIn"] > heard[name] for name in after), "no Pong came"
        seen = slow.seen
        assert seen["visible"] == "hidden"
        assert len(seen["ticks"]) < IDLE_MS / 3000, "its timers were not slowed down"
        gaps = [late - early for early, late in itertools.pairwise(seen["ticks"])]
        assert max(gaps) > 50_000, "its timers never waited for a minute"
        # It goes on with the connection that it has.
        peer = StompPeer(gateway.stomp_port)
        peer.send("slow", b"still there?")
        assert slow.wait(lambda seen: seen["messages"])["messages"][0]["body"] == "still there?"
        seen = slow.seen
        assert (seen["connects"], seen["closes"], seen["errors"]) == (1, [], [])

        # What comes for a frozen tab waits. Chromium itself ends a WebSocket when it thaws a tab,
        # so the page connects again, and has the message then.
        peer.send("frozen", b"still there?")
        wait_until(lambda: queue(gateway, "frozen")["deliveringCount"] == 1)
        frozen.thaw()
        seen = frozen.wait(lambda seen: seen["messages"])
        assert seen["messages"][0]["body"] == "still there?"
        assert [tick for tick in seen["ticks"] if began + 2000 < tick < began + IDLE_MS] == []
