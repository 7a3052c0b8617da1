"""stompjs and rhea in pages of a headless Chromium, over WebSocket, as people's web apps have them.

The page's origin is another one than the gateway's. Where there is no Chromium these tests are
skipped: it is a system package, and the environment script has it installed where it may.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import KeyPair, self_signed
from tests.conformance.small_disk import GIB, FiguresGateway
from tests.gateway.reloading import Live
from tests.gateway.stomp_peer import StompPeer
from tests.interop.browser import has_browser
from tests.interop.support import add_user, queue, wait_until
from tests.interop.tabs import Browser, page_server
from tests.logs import wait_log

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("chromium"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not has_browser(), reason="no Chromium here (Debian: apt-get install chromium)"
    ),
]

VERSIONS = ["1.0", "1.1", "1.2"]
THREE = ["first", "zweitens: grün", "third"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, pair: KeyPair) -> Iterator[Browser]:
    with page_server() as port:
        one = Browser(tmp_path_factory.mktemp("profile"), port, trusted=pair.certificate)
        yield one
        one.end()


@pytest.fixture(scope="module", params=["ws", "wss"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pair: KeyPair
) -> Iterator[ScratchGateway]:
    tls = pair if request.param == "wss" else None
    with ScratchGateway(tmp_path_factory.mktemp("gateway"), tls=tls) as running:
        yield running


def url(gateway: ScratchGateway, path: str = "/ws") -> str:
    scheme = "ws" if gateway.certificate is None else "wss"
    return f"{scheme}://{HOST}:{gateway.port}{path}"


def bodies(seen: dict[str, Any]) -> list[str]:
    return [one["body"] for one in seen["messages"]]


def receipts(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
def test_stompjs_sends_is_confirmed_and_receives(
    browser: Browser, gateway: ScratchGateway, version: str
) -> None:
    name = f"stompjs.{version}"
    with browser.open() as tab:
        tab.run("stomp", url=url(gateway), version=version, source=name)
        tab.run("send", destination=name, bodies=THREE)
        seen = tab.wait(lambda seen: len(seen["messages"]) == len(seen["confirmed"]) == 3)
        assert (bodies(seen), seen["confirmed"]) == (THREE, receipts(3))
        assert (seen["version"], seen["connects"]) == (version, 1)
        wait_until(lambda: queue(gateway, name)["messagesAcknowledged"] == 3)
        tab.run("leave")
        seen = tab.wait(lambda seen: seen["closes"])
        assert seen["errors"] == []
        (close,) = seen["closes"]
        assert (close["code"], close["wasClean"]) == (1000, True)


def test_rhea_sends_and_receives(browser: Browser, gateway: ScratchGateway) -> None:
    with browser.open() as tab:
        tab.run(
            "amqp",
            url=url(gateway, "/$servicebus/websocket"),
            protocols=["binary", "AMQPWSB10", "amqp"],
            address="rhea",
            source="rhea",
        )
        # The last one is larger than a message of WebSocket may be: AMQP has frames of its own.
        sent = [*THREE, "large " * 500_000]
        tab.run("offer", bodies=sent)
        seen = tab.wait(lambda seen: len(seen["messages"]) == len(seen["confirmed"]) == 4)
        assert (bodies(seen), seen["confirmed"], seen["connects"]) == (sent, receipts(4), 1)
        wait_until(lambda: queue(gateway, "rhea")["messageCount"] == 0)
        tab.run("leave")


def test_rhea_logs_in_by_plain(browser: Browser, tmp_path: Path, pair: KeyPair) -> None:
    gateway = ScratchGateway(tmp_path, tls=pair)
    add_user(gateway, "ann", "se:cret")
    with gateway:
        for password in ("wrong", "se:cret"):
            with browser.open() as tab:
                login = {"username": "ann", "password": password, "reconnect": False}
                tab.run(
                    "amqp", url=url(gateway), protocols=["AMQPWSB10"], address="in", login=login
                )
                if password == "wrong":
                    (error,) = tab.wait(lambda seen: seen["errors"])["errors"]
                    assert "authenticat" in str(error).lower()
                    continue
                tab.run("offer", bodies=THREE)
                tab.wait(lambda seen: seen["confirmed"] == receipts(3))


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_nothing_confirmed_is_lost_by_a_kill_and_the_page_connects_again(
    browser: Browser, tmp_path: Path, protocol: str
) -> None:
    gateway = ScratchGateway(tmp_path)
    gateway.start()
    with browser.open() as tab:
        if protocol == "stomp":
            tab.run("stomp", url=url(gateway))
            tab.wait(lambda seen: seen["connects"])
            tab.run("pump", destination="kept", count=50)
        else:
            tab.run("amqp", url=url(gateway), protocols=["amqp"], address="kept")
            tab.run("pump", count=50)
        tab.wait(lambda seen: len(seen["confirmed"]) >= 100)
        gateway.kill()
        before = len(tab.wait(lambda seen: seen["closes"])["confirmed"])
        gateway.start()
        tab.wait(lambda seen: len(seen["confirmed"]) > before + 100)
        tab.run("enough")
        seen = tab.wait(lambda seen: seen["unconfirmed"] == 0)
        assert seen["connects"] == 2
        confirmed = len(seen["confirmed"])
        tab.run("leave")
    with browser.open() as tab:
        tab.run("stomp", url=url(gateway), source="kept")
        tab.wait(lambda seen: queue(gateway, "kept")["messageCount"] == 0)
        seen = tab.seen
        # All that were sent were confirmed, some of them after they had been sent again.
        assert set(bodies(seen)) == {str(number) for number in range(1, confirmed + 1)}
        assert len(seen["messages"]) <= confirmed + 50
    assert gateway.stop() == 0


def test_a_page_is_told_that_the_disk_is_full_and_goes_on_when_there_is_room(
    browser: Browser, tmp_path: Path
) -> None:
    with FiguresGateway(tmp_path) as gateway, browser.open() as tab:
        tab.run("stomp", url=url(gateway))
        tab.run("send", destination="shelf", bodies=["before"], prefix="before")
        tab.wait(lambda seen: seen["confirmed"] == ["before0"])
        gateway.set_free(GIB)
        wait_until(lambda: bool(gateway.disk["full"]))
        tab.run("send", destination="shelf", bodies=THREE)
        seen = tab.wait(lambda seen: seen["errors"] and seen["closes"])
        headers = seen["errors"][0]["headers"]
        assert headers["error-code"] == "disk-full"
        assert headers["receipt-id"] == "r0"
        assert f"{GIB} of {100 * GIB} bytes are free" in headers["message"]
        assert seen["closes"][0]["code"] == 1013
        assert seen["closes"][0]["wasClean"]
        assert seen["confirmed"] == ["before0"]
        # The page connects again by itself, sends again, and is confirmed once there is room.
        gateway.set_free(50 * GIB)
        seen = tab.wait(lambda seen: len(seen["confirmed"]) == 4)
        assert seen["connects"] >= 2
        assert queue(gateway, "shelf")["messageCount"] == 4
        tab.run("leave")


def test_sends_to_a_full_address_wait_and_go_on(browser: Browser, tmp_path: Path) -> None:
    settings = (
        'address-settings."#".address-full-policy=BLOCK',
        'address-settings."#".max-size-messages=5',
    )
    with (
        ScratchGateway(tmp_path, settings=settings) as gateway,
        browser.open() as tab,
        browser.open() as reader,
    ):
        tab.run("stomp", url=url(gateway), beat=300)
        tab.run("send", destination="full", bodies=[str(number) for number in range(20)])
        tab.wait(lambda seen: len(seen["confirmed"]) >= 5)
        # The gateway's heart-beats go on meanwhile.
        beats = tab.seen["beats"]["came"]
        seen = tab.wait(lambda seen: seen["beats"]["came"] >= beats + 4)
        held = seen["unconfirmed"]
        assert held > 0
        assert len(seen["confirmed"]) + held == 20
        assert queue(gateway, "full")["messageCount"] < 20
        reader.run("stomp", url=url(gateway), source="full")
        read = reader.wait(lambda seen: len(seen["messages"]) == 20)
        assert bodies(read) == [str(number) for number in range(20)]
        seen = tab.wait(lambda seen: len(seen["confirmed"]) == 20)
        assert (seen["connects"], seen["errors"], seen["closes"]) == (1, [], [])


def test_a_page_of_another_origin_is_refused_until_the_configuration_names_it(
    browser: Browser, tmp_path: Path
) -> None:
    started: list[ScratchGateway] = []

    def start(config: Path) -> ScratchGateway:
        started.append(ScratchGateway(tmp_path / "gateway", config=config))
        started[0].start()
        return started[0]

    live = Live(start, tmp_path)
    gateway = live.gateway
    allowed = browser.origin("shop.example")
    with browser.open("shop.example") as shop, browser.open("evil.example") as evil:
        for tab in (shop, evil):
            tab.run("stomp", url=url(gateway))
            seen = tab.wait(lambda seen: seen["closes"])
            assert (seen["connects"], seen["closes"][0]["code"]) == (0, 1006)
        wait_log(gateway, f"403: Pages of {allowed} may not connect")
        assert shop.run("sandboxed", url=url(gateway)) == ["null", False]
        live.reload(f'[acceptors.all]\nallowed-origins = ["{allowed}"]\n')
        # Both go on trying; one gets in.
        assert shop.wait(lambda seen: seen["connects"])["connects"] == 1
        refused = len(evil.seen["closes"])
        seen = evil.wait(lambda seen: len(seen["closes"]) > refused + 1)
        assert seen["connects"] == 0
    assert gateway.stop() == 0


def test_a_wrong_password_is_told_and_the_right_one_lets_in(
    browser: Browser, tmp_path: Path
) -> None:
    gateway = ScratchGateway(tmp_path)
    add_user(gateway, "ann", "se:cret")
    with gateway, browser.open() as tab:
        tab.run("stomp", url=url(gateway), login={"login": "ann", "passcode": "wrong"})
        seen = tab.wait(lambda seen: seen["errors"] and seen["closes"])
        assert seen["connects"] == 0
        (error, *_) = seen["errors"]
        assert error["headers"]["error-code"]
        assert error["headers"]["message"]
        assert "wrong" not in str(seen["errors"])
        close = seen["closes"][0]
        assert (close["code"], close["wasClean"]) == (1008, True)
        # The reason of a Close tells no more than its kind.
        assert "ann" not in close["reason"]
        tab.run("login", login="ann", passcode="se:cret")
        seen = tab.wait(lambda seen: seen["connects"])
        tab.run("send", destination="in", bodies=["here"])
        tab.wait(lambda seen: seen["confirmed"])


def test_what_stomp_sends_by_tcp_comes_to_a_page(browser: Browser, gateway: ScratchGateway) -> None:
    context = None
    if gateway.certificate is not None:
        context = ssl.create_default_context(cafile=str(gateway.certificate))
    with browser.open() as tab:
        tab.run("stomp", url=url(gateway), source="crossing", ack="auto", binary=True)
        tab.wait(lambda seen: seen["connects"])
        StompPeer(gateway.stomp_port, context=context).send("crossing", "grün".encode())
        assert bodies(tab.wait(lambda seen: seen["messages"])) == ["grün"]


def test_large_texts_go_both_ways(browser: Browser, gateway: ScratchGateway) -> None:
    large = ["grün " * 80_000, "x" * 1_000_000, "small"]
    with browser.open() as tab:
        tab.run("stomp", url=url(gateway), source="large")
        tab.run("send", destination="large", bodies=large)
        seen = tab.wait(lambda seen: len(seen["messages"]) == len(seen["confirmed"]) == 3)
        assert bodies(seen) == large
        assert (seen["connects"], seen["closes"]) == (1, [])


def test_a_page_is_told_that_its_message_is_too_large(
    browser: Browser, gateway: ScratchGateway
) -> None:
    with browser.open() as tab, browser.open() as other:
        other.run("stomp", url=url(gateway))
        other.wait(lambda seen: seen["connects"])
        tab.run("stomp", url=url(gateway), reconnectDelay=0)
        tab.run("send", destination="huge", bodies=["x" * 2_000_000])
        (close,) = tab.wait(lambda seen: seen["closes"])["closes"]
        assert (close["code"], close["reason"]) == (1009, "A message is larger than 1048576 bytes.")
        other.run("send", destination="huge", bodies=["not so huge"])
        assert other.wait(lambda seen: seen["confirmed"])["connects"] == 1


def test_what_a_closed_tab_had_goes_to_another(browser: Browser, gateway: ScratchGateway) -> None:
    with browser.open() as other:
        other.run("stomp", url=url(gateway))
        with browser.open() as tab:
            tab.run("stomp", url=url(gateway), source="orphans", ack="never")
            tab.wait(lambda seen: seen["connects"])
            other.run("send", destination="orphans", bodies=THREE)
            tab.wait(lambda seen: len(seen["messages"]) == 3)
            assert queue(gateway, "orphans")["deliveringCount"] == 3
        other.run("subscribe", destination="orphans")
        seen = other.wait(lambda seen: len(seen["messages"]) == 3)
        assert bodies(seen) == THREE
        assert {one["redelivered"] for one in seen["messages"]} == {"true"}


def test_a_page_is_told_of_a_stop_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    gateway.start()
    with browser.open() as tab:
        tab.run("stomp", url=url(gateway))
        tab.run("pump", destination="stopping", count=20)
        tab.wait(lambda seen: len(seen["confirmed"]) > 20)
        assert gateway.stop() == 0
        seen = tab.wait(lambda seen: seen["closes"])
        assert "shutting down" in seen["errors"][0]["headers"]["message"]
        assert (seen["closes"][0]["code"], seen["closes"][0]["reason"]) == (
            1001,
            "gateway-stopping, retry-after 5",
        )
        gateway.start()
        tab.wait(lambda seen: seen["connects"] == 2)
        tab.run("enough")
        seen = tab.wait(lambda seen: seen["unconfirmed"] == 0)
        assert queue(gateway, "stopping")["messageCount"] >= len(seen["confirmed"])
    assert gateway.stop() == 0


def test_a_page_that_is_busy_gets_all_of_a_flood_in_its_time(
    browser: Browser, tmp_path: Path
) -> None:
    amount = 10_000
    with ScratchGateway(tmp_path) as gateway, browser.open() as tab:
        tab.run("stomp", url=url(gateway))
        tab.wait(lambda seen: seen["connects"])
        peer = StompPeer(gateway.stomp_port)
        for number in range(amount - 1):
            peer.send("flood", f"{number} {'x' * 1000}".encode())
        peer.send("flood", f"{amount - 1}".encode(), receipt="last")
        assert peer.read()[1]["receipt-id"] == "last"
        tab.run("count", destination="flood")
        tab.run("block", ms=2000)
        seen = tab.wait(lambda seen: seen["count"] == amount)
        assert (seen["connects"], seen["closes"], seen["errors"]) == (1, [], [])
