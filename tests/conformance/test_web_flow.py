"""Web pages that have to wait or are refused: full disk, full address, login, the gateway's end."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from tests.broker.core import Core, entry
from tests.conformance.clients import VERSIONS, Stomp, bodies
from tests.conformance.test_disk import GIB, Site
from tests.conformance.web_page import Frames, Page
from tests.protocols.scripted_broker import ScriptedAuthenticator

every_version = pytest.mark.parametrize("version", VERSIONS)


# ---- the disk


@every_version
def test_rabbitmq_server_17439_a_page_is_stopped_at_the_disk_limit(version: str) -> None:
    """RabbitMQ's alarm never reaches STOMP over WebSocket: pages fill the disk to its end."""
    site = Site()
    page, late = Page(site.core, version), Page(site.core, version)
    assert page.send("0", "before")[0][0] == "RECEIPT"
    site.fill()
    ((command, headers, body),) = page.send("1", "mine")
    assert (command, headers["receipt-id"], headers["error-code"]) == ("ERROR", "mine", "disk-full")
    assert headers["retry-after"] == "5"
    assert f"{GIB} of {100 * GIB} bytes are free at /data" in headers["message"]
    assert f"min-disk-free is {GIB} bytes" in body.decode()
    assert page.ends == [(1013, "disk-full, retry-after 5")]
    assert site.core.waiting("q") == [b"0"]
    site.release()
    assert late.send("2", "after")[0][1]["receipt-id"] == "after", "it sent nothing meanwhile"
    assert site.core.waiting("q") == [b"0", b"2"]
    site.core.check()


@every_version
@pytest.mark.parametrize("early", [True, False])
def test_a_page_that_only_consumes_goes_on_while_the_disk_is_full(
    version: str, *, early: bool
) -> None:
    site = Site()
    page = Page(site.core, version)
    subscribe = "SUBSCRIBE\nid:s\ndestination:q\nack:client\n\n\0"
    site.core.send("q", b"a", b"b")
    came = page.say(subscribe) if early else []
    site.fill()
    came += [] if early else page.say(subscribe)
    assert bodies(came) == ["a", "b"]
    named = came[-1][1]
    key = f"id:{named['ack']}" if version == "1.2" else f"message-id:{named['message-id']}"
    where = "subscription:s\n" if version == "1.1" else ""
    assert [one[0] for one in page.say(f"ACK\n{key}\n{where}receipt:r\n\n\0")] == ["RECEIPT"]
    assert page.ends == []
    assert site.core.queue("q").message_count == 0
    site.core.check()


@every_version
def test_with_pause_a_page_waits_for_the_disk_and_is_not_told(version: str) -> None:
    site = Site()
    page = Page(site.core, version, connect="heart-beat:1000,1000\n", disk_full_pause=True)
    site.fill()
    assert page.send("1", "a") == []
    assert page.wait(30) == []
    page.ping(b"there?")
    assert (page.pongs, page.ends) == ([b"there?"], [])
    assert page.beats >= 25
    site.release()
    assert [headers["receipt-id"] for _, headers, _ in page.more()] == ["a"]
    assert site.core.waiting("q") == [b"1"]


def test_a_disk_that_empties_says_how_long_that_takes() -> None:
    site = Site()
    site.fill()
    for free in range(GIB // 2, GIB, GIB // 16):
        site.scan(free)
    ((_, headers, _),) = Page(site.core).send("1", "r")
    # An eighth of a GiB at most is missing, and a sixteenth comes in five seconds, by what a
    # minute's average knows of it so far.
    assert 5 < int(headers["retry-after"]) <= 60


# ---- a full address


def full_core(policy: FullPolicy, most: int = 2) -> Core:
    return Core(entry("full.#", address_full_policy=policy, max_size_messages=most))


def drain(core: Core, page: Page, count: int) -> tuple[Frames, Frames]:
    """Consume so many; returns them, and what came to the page meanwhile."""
    reader = Stomp(core)
    came, heard = reader.subscribe("full.q", "client", consumer_window_size="-1"), page.more()
    settled = 0
    while len(came) > settled:
        settled = len(came)
        reader.settle(came[-1])
        heard += page.more()
        came += reader.more()
    assert len(came) == count
    assert core.queue("full.q").message_count == 0
    return came, heard


@every_version
def test_a_page_at_a_full_address_waits_alive_and_goes_on_without_loss(version: str) -> None:
    core = full_core(FullPolicy.BLOCK)
    page = Page(core, version, connect="heart-beat:1000,1000\n")
    confirmed = []
    for number in range(1, 6):
        confirmed += page.send(str(number), str(number), to="full.q")
    assert [headers["receipt-id"] for _, headers, _ in confirmed] == ["1", "2"]
    # Longer than any time to live: it beats as agreed, then it is silent, as a tab that sleeps is.
    for _ in range(60):
        page.say("\n")
        assert page.wait(1) == []
    assert page.beats >= 55, "it hears no heart-beats while it waits"
    for number in range(5):
        page.ping(b"%d" % number)
    assert page.pongs == [b"%d" % number for number in range(5)]
    assert page.wait(300) == []
    assert page.ends == []
    came, more = drain(core, page, 5)
    assert bodies(came) == ["1", "2", "3", "4", "5"]
    confirmed += more
    assert [headers["receipt-id"] for _, headers, _ in confirmed] == ["1", "2", "3", "4", "5"]
    assert page.send("6", "6", to="full.q")[0][1]["receipt-id"] == "6"


def test_a_page_that_sends_on_and_on_at_a_full_address_is_not_read() -> None:
    core = full_core(FullPolicy.BLOCK)
    page = Page(core)
    for number in range(100):
        page.send(f"{number}-" + "m" * 4000, str(number), to="full.q")
    assert page.session.paused_reading
    assert len(page.unread) > 80
    assert core.queue("full.q").message_count == 2
    came, _ = drain(core, page, 100)
    assert [body.partition("-")[0] for body in bodies(came)] == [str(n) for n in range(100)]


@every_version
def test_acks_of_a_page_are_heard_while_its_sends_wait(version: str) -> None:
    """The room that its SENDs wait for is what it has not acknowledged."""
    core = full_core(FullPolicy.BLOCK)
    core.send("full.q", b"a", b"b")
    page = Page(core, version)
    came = page.say("SUBSCRIBE\nid:s\ndestination:full.q\nack:client\n\n\0")
    assert bodies(came) == ["a", "b"]
    assert page.send("c", "mine", to="full.q") == []
    named = came[-1][1]
    key = f"id:{named['ack']}" if version == "1.2" else f"message-id:{named['message-id']}"
    where = "subscription:s\n" if version == "1.1" else ""
    kinds = [name for name, _, _ in page.say(f"ACK\n{key}\n{where}\n\0") + page.more()]
    assert sorted(kinds) == ["MESSAGE", "RECEIPT"]
    core.check()


@every_version
def test_under_fail_a_page_is_told_what_is_full_and_when_to_try_again(version: str) -> None:
    core = full_core(FullPolicy.FAIL)
    page = Page(core, version)
    for number in range(2):
        page.send(str(number), "r", to="full.q")
    ((command, headers, _),) = page.send("2", "mine", to="full.q")
    assert (command, headers["receipt-id"]) == ("ERROR", "mine")
    assert (headers["error-code"], headers["retry-after"]) == ("address-full", "5")
    assert "it holds 2 messages and max-size-messages is 2" in headers["message"]
    ends = [(1013, "address-full, retry-after 5")] if version == "1.2" else []
    assert page.ends == ends, "1.2 ends with an ERROR, and its socket too"
    assert core.waiting("full.q") == [b"0", b"1"]


# ---- logins and ends


@every_version
@pytest.mark.parametrize(
    ("held", "said"),
    [
        (11.5, ("too-many", "12", (1013, "login-refused, retry-after 12"))),
        (0.0, ("not-authorized", None, (1008, "login-refused"))),
    ],
)
def test_a_login_that_is_not_looked_at_says_when_it_will_be(
    version: str, held: float, said: tuple[str, str | None, tuple[int, str]]
) -> None:
    users = ScriptedAuthenticator(is_open=False)
    users.seconds = held
    page = Page(Core(), version, connect="login:ann\npasscode:x\n", authenticator=users)
    assert users.answer is not None
    # What it waits for is counted from before, however much has gone wrong by now.
    users.seconds = 99.0
    users.answer(False)
    ((command, headers, _),) = page.more()
    assert command == "ERROR"
    assert (headers["error-code"], headers.get("retry-after"), *page.ends) == said


@every_version
def test_a_stop_says_when_to_come_back(version: str) -> None:
    page = Page(Core(), version)
    page.session.stop(page.now)
    ((command, headers, _),) = page.more()
    assert (command, headers["error-code"], headers["retry-after"]) == (
        "ERROR",
        "shutting-down",
        "5",
    )
    assert page.ends == [(1001, "gateway-stopping, retry-after 5")]


@every_version
def test_a_mistake_has_no_time_to_wait(version: str) -> None:
    page = Page(Core(), version)
    ((command, headers, _),) = page.say("ACK\nid:1\nmessage-id:1\nsubscription:s\n\n\0")
    assert command == "ERROR"
    assert "retry-after" not in headers
    assert page.ends == ([(1008, headers["error-code"])] if version == "1.2" else [])
