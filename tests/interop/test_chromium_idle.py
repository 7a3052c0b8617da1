"""Tabs that nobody looks at for two minutes: their timers hardly run, their connections stay.

Chromium runs the timers of a tab in the background once a minute, and those of a frozen one not at
all; so the heart-beats that stompjs owes come late, or never. The browser itself answers a Ping,
and a Pong is life to the gateway.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.interop.browser import has_browser
from tests.interop.tabs import Browser, Tab, page_server
from tests.logs import log_text

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
SLOW = ("stomp", "amqp")
FROZEN = ("stomp-frozen", "amqp-frozen")
#: A tab whose sends wait for room at an address.
FULL = "full"
TABS = (*SLOW, *FROZEN, FULL)
ROOM = 5
BODIES = [str(number) for number in range(20)]
SETTINGS = (
    f"address-settings.{FULL}.address-full-policy=BLOCK",
    f"address-settings.{FULL}.max-size-messages={ROOM}",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with page_server() as port:
        one = Browser(tmp_path / "profile", port, throttled=True)
        yield one
        one.end()


def connections(gateway: ScratchGateway) -> dict[str, Any]:
    """Return the connections by id."""
    status, listed = gateway.request("GET", "/api/v1/connections")
    assert status == 200
    assert isinstance(listed, dict)
    return {one["id"]: one for one in listed["items"]}


def begin(tab: Tab, gateway: ScratchGateway, name: str) -> None:
    """Connect, and have a timer count; the name of an AMQP tab begins with that."""
    where = f"ws://{HOST}:{gateway.port}/ws"
    if name.startswith("amqp"):
        tab.run("amqp", url=where, protocols=["amqp"], address=name, source=name)
    else:
        tab.run("stomp", url=where, beat=BEAT_MS, source=None if name == FULL else name)
    tab.wait(lambda seen: seen["connects"])
    tab.run("tick")


def test_tabs_without_timers_stay_connected_for_two_minutes(
    browser: Browser, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(ScratchGateway(tmp_path / "gateway", settings=SETTINGS))
        tabs = {name: stack.enter_context(browser.open()) for name in TABS}
        for name, tab in tabs.items():
            begin(tab, gateway, name)
        tabs[FULL].run("send", destination=FULL, bodies=BODIES)
        tabs[FULL].wait(lambda seen: len(seen["confirmed"]) == ROOM)
        before = connections(gateway)
        assert len(before) == len(TABS)
        stack.enter_context(browser.open()).front()
        for tab in tabs.values():
            tab.wait(lambda seen: seen["visible"] == "hidden")
        began = {name: tabs[name].seen["now"] for name in FROZEN}
        for name in FROZEN:
            tabs[name].freeze()
        heard = {name: one["bytesIn"] for name, one in connections(gateway).items()}
        time.sleep(IDLE_MS / 1000)

        after = connections(gateway)
        assert after.keys() == before.keys(), log_text(gateway)[-3000:]
        silent = [name for name in after if after[name]["bytesIn"] == heard[name]]
        assert len(silent) <= 1, "Pongs came from all but the one that is not read from"
        for name in SLOW:
            look_slow(tabs[name].seen)
        # They go on with the connections that they have.
        peer = StompPeer(gateway.stomp_port)
        for name in TABS:
            if name != FULL:
                peer.send(name, b"still there?")
        for name in SLOW:
            seen = tabs[name].wait(lambda seen: seen["messages"])
            assert seen["messages"][0]["body"] == "still there?"
        # What comes for a frozen tab waits. Chromium itself ends a WebSocket when it thaws a tab,
        # so the page connects again, and has the message then.
        for name in FROZEN:
            tabs[name].thaw()
        for name in FROZEN:
            seen = tabs[name].wait(lambda seen: seen["messages"])
            frozen = range(int(began[name]) + 2000, int(began[name]) + IDLE_MS)
            assert [tick for tick in seen["ticks"] if tick in frozen] == []
        # What waits for room at an address goes there when there is some.
        reader = stack.enter_context(browser.open())
        reader.run("stomp", url=f"ws://{HOST}:{gateway.port}/ws", source=FULL)
        seen = tabs[FULL].wait(lambda seen: seen["unconfirmed"] == 0)
        for seen in (tabs[name].seen for name in (*SLOW, FULL)):
            assert (seen["connects"], seen["closes"], seen["errors"]) == (1, [], [])


def look_slow(seen: dict[str, Any]) -> None:
    """Assert that the timers of a page hardly ran."""
    assert seen["visible"] == "hidden"
    assert len(seen["ticks"]) < IDLE_MS / 3000, "its timers were not slowed down"
    gaps = [late - early for early, late in itertools.pairwise(seen["ticks"])]
    assert max(gaps) > 50_000, "its timers never waited for a minute"
