"""Pages of foreign origins: whatever their browser writes, the gateway does nothing for them."""

from __future__ import annotations

import pytest

from protocols.transport.speaking import PeerFacts
from protocols.websocket.limits import MANAGEMENT_PATHS, WebSocketLimits
from protocols.websocket.origins import read_host, read_origin
from tests.protocols.websocket.client import request
from tests.protocols.websocket.inner import Built

#: A gateway with users that a proxy or a name of its own leads to, one of this machine that
#: everybody may use, one that lists a shop, and the management listener.
PUBLIC = WebSocketLimits()
OPEN = WebSocketLimits(open_to_all=True)
SHOP = WebSocketLimits(origins=frozenset({"https://shop.example", "http://[2001:db8::1]:8080"}))
MANAGEMENT = WebSocketLimits(
    open_to_all=True, paths=MANAGEMENT_PATHS, hosts=frozenset({"gate.example"})
)
HERE = PeerFacts(address="127.0.0.1", loopback=True, tls=False, name="c1", own="127.0.0.1")
AFAR = PeerFacts(address="192.0.2.1", loopback=False, tls=True, name="c1", own="198.51.100.7")


def status(limits: WebSocketLimits, facts: PeerFacts = HERE, **headers: str | None) -> int:
    """Return what a handshake is answered with."""
    session = Built(limits=limits, facts=facts).session
    session.receive_data(request("/stomp", **headers), 1.0)
    return int(session.data_to_send().split(b" ")[1])


#: Twelve tricks and more, each against the list of the shop.
FOREIGN = [
    "null",
    "https://evil.example",
    "https://shop.example.evil.example",
    "https://evilshop.example",
    "https://shop.example@evil.example",
    "https://evil.example/https://shop.example",
    "https://evil.example?https://shop.example",
    "https://evil.example#https://shop.example",
    "https://shop.example/",
    "https://shop.example:8443",
    "https://shop.example.",
    "https://.shop.example",
    "http://shop.example",
    "ws://shop.example",
    "https:shop.example",
    "https://shop.example https://evil.example",
    "https://sh\u00f6p.example",
    "https://xn--shp-sna.example",
    "https://\uff53hop.example",
    "https://shop%2eexample",
    "https://shop\u3002example",
    "file://",
    "file:///etc/passwd",
    "data:",
    "about:blank",
    "chrome-extension://abcdefghijklmnop",
    "*",
    "",
    "https://",
    "//shop.example",
    "shop.example",
    "http://[2001:db8::1]",
    "http://2001:db8::1:8080",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_tricks_with_names(origin: str) -> None:
    written = origin.encode().decode("latin-1")
    for limits in (PUBLIC, OPEN, SHOP):
        for host in ("shop.example.evil.example:81", "localhost:5672", "gate.example", "192.0.2.7"):
            found = status(limits, Origin=written, Host=host)
            assert found in (400, 403), (found, host)


@pytest.mark.parametrize(
    "origin",
    [
        "https://shop.example",
        "HTTPS://Shop.Example",
        "https://shop.example:443",
        "http://[2001:db8::1]:8080",
    ],
)
def test_the_list_is_of_origins_not_of_texts(origin: str) -> None:
    assert status(SHOP, Origin=origin, Host="gate.example") == 101
    assert status(PUBLIC, Origin=origin, Host="gate.example") == 403


class TestRebinding:
    """The name evil.example points at this machine since its page was loaded."""

    PAGE = "http://evil.example:5672"

    def test_without_a_login_a_name_proves_nothing(self) -> None:
        assert status(OPEN, Origin=self.PAGE, Host="evil.example:5672") == 403
        assert status(OPEN, Origin="http://gate.local", Host="gate.local") == 403

    def test_with_users_the_page_lacks_a_login(self) -> None:
        assert status(PUBLIC, Origin=self.PAGE, Host="evil.example:5672") == 101

    def test_an_address_is_no_name(self) -> None:
        for address in ("192.0.2.7", "[2001:db8::7]"):
            assert status(OPEN, Origin=f"http://{address}:5672", Host=f"{address}:5672") == 101
            assert status(OPEN, Origin=f"http://{address}:80", Host=f"{address}:5672") == 403

    @pytest.mark.parametrize("origin", [None, PAGE, "http://localhost:3000"])
    def test_the_management_listener_is_nobodys_but_its_own(self, origin: str | None) -> None:
        for host in ("evil.example:8161", "evil.example", "localhost.evil.example", "127.1"):
            assert status(MANAGEMENT, Origin=origin, Host=host) == 421

    def test_its_own_names_are_its_address_loopback_and_those_written(self) -> None:
        for host in ("127.0.0.1:8161", "[::1]", "LOCALHOST", "gate.example:8161"):
            assert status(MANAGEMENT, Host=host) == 101
        assert status(MANAGEMENT, AFAR, Host="198.51.100.7:8161") == 101
        assert status(MANAGEMENT, AFAR, Host="198.51.100.8:8161") == 421


class TestLoopback:
    """A page of `localhost` is one of the machine that its browser runs on."""

    PAGES = (
        "http://localhost:3000",
        "http://127.0.0.1",
        "https://[::1]:8443",
        "http://a.localhost",
    )

    @pytest.mark.parametrize("page", PAGES)
    def test_it_may_connect_to_a_gateway_there(self, page: str) -> None:
        for host in ("localhost:5672", "127.0.0.1:5672", "[::1]:5672"):
            assert status(OPEN, Origin=page, Host=host) == 101

    @pytest.mark.parametrize("page", PAGES)
    def test_it_may_not_connect_to_one_elsewhere(self, page: str) -> None:
        for host in ("gate.example", "198.51.100.7:5672", "localhost.evil.example", "localhost."):
            for facts in (AFAR, HERE):
                assert status(PUBLIC, facts, Origin=page, Host=host) == 403

    @pytest.mark.parametrize(
        "header", ["Forwarded", "Via", "X_Forwarded_For", "X_Forwarded_Host", "X_Real_IP"]
    )
    def test_nor_by_way_of_a_proxy_that_asks_for_localhost(self, header: str) -> None:
        said: dict[str, str | None] = {header: "192.0.2.1"}
        assert status(PUBLIC, Origin="http://localhost:3000", Host="127.0.0.1:5672", **said) == 403
        # A header that says less: it takes away, and gives nothing.
        assert status(SHOP, Origin="https://shop.example", Host="127.0.0.1:5672", **said) == 101
        assert status(PUBLIC, Origin="https://evil.example", Host="127.0.0.1", **said) == 403

    @pytest.mark.parametrize(
        "origin",
        [
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://localhost@evil.example",
            "http://evil.example#@localhost",
            "http://evillocalhost",
            "http://localhost.",
            "http://127.1",
            "http://2130706433",
            "http://0x7f000001",
            "http://0.0.0.0",
            "http://[::ffff:0:0]",
            "http://128.0.0.1",
            "http://localhost:0x50",
            "http://localhost:99999",
            "http://localhost:",
            "ftp://localhost",
        ],
    )
    def test_what_only_looks_like_one(self, origin: str) -> None:
        assert status(PUBLIC, Origin=origin, Host="localhost:5672") == 403


class TestTls:
    def test_a_page_that_came_in_the_clear_is_another_origin(self) -> None:
        assert status(PUBLIC, AFAR, Origin="https://gate.example", Host="gate.example") == 101
        assert status(PUBLIC, AFAR, Origin="http://gate.example", Host="gate.example") == 403
        assert (
            status(PUBLIC, AFAR, Origin="http://gate.example:443", Host="gate.example:443") == 403
        )


class TestNoOrigin:
    def test_a_program_has_none(self) -> None:
        assert status(OPEN, Host="evil.example") == 101

    @pytest.mark.parametrize(
        ("site", "let_in"), [("none", 101), ("same-origin", 101), ("same-site", 403)]
    )
    def test_a_browser_tells_even_where_somebody_took_it_away(self, site: str, let_in: int) -> None:
        assert status(OPEN, Host="localhost", Sec_Fetch_Site=site) == let_in

    def test_a_page_of_another_site(self) -> None:
        assert status(OPEN, Host="localhost", Sec_Fetch_Site="cross-site") == 403
        assert status(OPEN, Host="localhost", Sec_Fetch_Site="cross-site, none") == 403


def test_a_star_lets_everybody_in_and_nothing_else_does() -> None:
    star = WebSocketLimits(origins=frozenset({"*"}))
    for origin in ("null", "https://evil.example", "file://"):
        assert status(star, Origin=origin, Host="x") == 101
    assert status(WebSocketLimits(origins=frozenset({"null"})), Origin="null", Host="x") == 403


def test_reading() -> None:
    assert read_origin("https://a.example") == ("https", "a.example", 443)
    assert read_origin("http://[::1]:8") == ("http", "::1", 8)
    assert read_origin("http://a:65536") is None
    assert read_host("A.example:80") == "a.example"
    assert read_host("[::1]") == "[::1]"
    assert [read_host(text) for text in ("", "a b", "a:", "a:x", "[::1", "a,b", ":80")] == [
        None
    ] * 7
