"""The order board: its page server, its rules, and all of it at once in a browser with Spark."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import stomp

from gateway.trial.scratch import HOST, ScratchGateway, free_ports, importing_environment
from tests.examples.chromium_page import ChromiumPage
from tests.interop.node import ORDER_BOARD, NoNodeError, install
from tests.interop.support import add_user

WEB = Path(__file__).resolve().parents[2] / "examples" / "web"
SECRET = "only-for-the-page"
GATEWAY_PORT = 5999
#: Chromium's own bound between a page that stands still enough and one that does not.
GOOD_LAYOUT_SHIFT = 0.1
SPARK_SECONDS = 150.0


#: One worker, for one installation of the packages.
INSTALLS = pytest.mark.xdist_group("spark")


class PageServer:
    """A running `server.py`."""

    def __init__(self, gateway_port: int = GATEWAY_PORT, passcode: str = SECRET) -> None:
        (self.port,) = free_ports(1)
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(WEB / "server.py"), "--port", str(self.port)),
                *("--gateway-port", str(gateway_port)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**importing_environment(), "ORDER_BOARD_PASSCODE": passcode},
        )
        assert self.process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(10) == 0

    def ask(self, method: str, path: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
        """Return the answer and its body; `sec_fetch_site=` becomes `Sec-Fetch-Site:`."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    started = PageServer()
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("path", "kind", "within"),
    [
        ("/", "text/html; charset=utf-8", "<title>Order board</title>"),
        ("/app.js", "text/javascript; charset=utf-8", "new Outbox"),
        ("/style.css", "text/css; charset=utf-8", "prefers-color-scheme"),
        ("/catalogue.json", "application/json", '"tea"'),
        ("/favicon.svg", "image/svg+xml", "<svg"),
        ("/vendor/stomp.umd.min.js", "text/javascript; charset=utf-8", "StompJs"),
    ],
)
def test_the_page_is_served_and_holds_the_browser_to_itself(
    server: PageServer, path: str, kind: str, within: str
) -> None:
    answer, text = server.ask("GET", path)
    assert (answer.status, answer.getheader("Content-Type")) == (200, kind)
    assert within in text
    assert SECRET not in text
    policy = answer.getheader("Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert f"connect-src 'self' ws://{HOST}:{GATEWAY_PORT};" in policy
    assert "unsafe" not in policy
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    head, nothing = server.ask("HEAD", path)
    assert (head.status, nothing) == (200, "")
    assert head.getheader("Content-Length") == answer.getheader("Content-Length")


@pytest.mark.parametrize(
    "path",
    [
        "/server.py",
        "/gateway.toml",
        "/README.md",
        "/vendor",
        "/vendor/../server.py",
        "/../board.py",
        "/%2e%2e/spark_stream.py",
    ],
)
def test_nothing_else_is_served(server: PageServer, path: str) -> None:
    assert server.ask("GET", path)[0].status == 404


def test_the_page_is_given_its_login_anew_each_time(server: PageServer) -> None:
    origin = f"http://{HOST}:{server.port}"
    answer, text = server.ask("POST", "/login", origin=origin, sec_fetch_site="same-origin")
    assert (answer.status, answer.getheader("Cache-Control")) == (200, "no-store")
    assert json.loads(text) == {
        "url": f"ws://{HOST}:{GATEWAY_PORT}/stomp",
        "login": "page",
        "passcode": SECRET,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec_fetch_site": "same-origin"},
        {"origin": "OWN", "sec_fetch_site": "cross-site"},
        {"origin": "OWN", "sec_fetch_site": "same-site"},
    ],
)
def test_no_other_page_is_given_a_login(server: PageServer, headers: dict[str, str]) -> None:
    own = f"http://{HOST}:{server.port}"
    named = {name: value.replace("OWN", own) for name, value in headers.items()}
    answer, text = server.ask("POST", "/login", **named)
    assert answer.status == 403
    assert SECRET not in text


def test_a_name_that_points_here_is_not_served(server: PageServer) -> None:
    host = f"evil.example:{server.port}"
    answer, text = server.ask("POST", "/login", host=host, origin=f"http://{host}")
    assert (answer.status, SECRET in text) == (421, False)
    assert server.ask("GET", "/", host=host)[0].status == 421
    assert server.ask("GET", "/", host=f"localhost:{server.port}")[0].status == 200


def test_a_wrong_method_is_told_the_right_one(server: PageServer) -> None:
    answer, _ = server.ask("GET", "/login")
    assert (answer.status, answer.getheader("Allow")) == (405, "POST")
    answer, _ = server.ask("POST", "/")
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of the example, which finds its neighbours as when it is run."""
    monkeypatch.syspath_prepend(str(WEB))
    spec = importlib.util.spec_from_file_location(f"order_board_{name}", WEB / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RIGHT = {"id": "1", "product": "tea", "quantity": 3, "region": "north"}


@pytest.mark.parametrize(
    ("body", "within"),
    [
        (json.dumps(RIGHT), None),
        (json.dumps({**RIGHT, "quantity": 20}), None),
        ("tea", "not JSON"),
        ("[]", "not an object"),
        (json.dumps({**RIGHT, "product": "beer"}), "'beer' is unknown"),
        (json.dumps({**RIGHT, "region": None}), "None is unknown"),
        (json.dumps({**RIGHT, "quantity": 0}), "1 to 20"),
        (json.dumps({**RIGHT, "quantity": 21}), "1 to 20"),
        (json.dumps({**RIGHT, "quantity": 1.5}), "1 to 20"),
        (json.dumps({**RIGHT, "quantity": True}), "1 to 20"),
    ],
)
def test_what_a_right_order_is(
    body: str, within: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = loaded("board", monkeypatch).fault(body)
    assert fault is None if within is None else within in fault


def test_a_part_that_ends_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = loaded("parts", monkeypatch)
    code = "import sys; print('ready'); print('hello'); sys.exit('no room left')"
    part = program.Part("worker", tmp_path / "log", "-c", code, env=importing_environment())
    assert part.ready.wait(20)
    part._process.wait(20)
    with pytest.raises(program.PartFailedError) as caught:
        part.check()
    assert "The worker ended with status 1.\n    no room left" in str(caught.value)
    part.stop()
    assert "  worker: hello\n" in capsys.readouterr().out


def test_a_part_that_stands_still_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = loaded("parts", monkeypatch)
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('ready')"
    part = program.Part("worker", tmp_path / "log", "-c", code, env=importing_environment())
    assert part.ready.wait(20)
    part.pause()
    part.stop()
    with pytest.raises(program.PartFailedError, match="status 0"):
        part.check()


@pytest.mark.interop
@INSTALLS
def test_the_libraries_are_the_packages_unchanged() -> None:
    try:
        install(ORDER_BOARD)
    except NoNodeError as error:
        pytest.fail(str(error))
    packages = ORDER_BOARD / "node_modules"
    versions = {}
    for name, ours, theirs in (
        ("@stomp/stompjs", "stomp.umd.min.js", "bundles/stomp.umd.min.js"),
        ("@stomp/stompjs", "stompjs-LICENSE.txt", "LICENSE"),
        ("uplot", "uPlot.iife.min.js", "dist/uPlot.iife.min.js"),
        ("uplot", "uPlot.min.css", "dist/uPlot.min.css"),
        ("uplot", "uPlot-LICENSE.txt", "LICENSE"),
    ):
        assert (WEB / "vendor" / ours).read_bytes() == (packages / name / theirs).read_bytes()
        versions[name] = json.loads((packages / name / "package.json").read_text())["version"]
    stated = (WEB / "vendor" / "README.md").read_text()
    assert all(f"`{name}` {version}" in stated for name, version in versions.items())


Shop = Callable[..., tuple[ScratchGateway, ChromiumPage]]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A function that opens the page at a gateway with `gateway.toml`, without worker and Spark."""
    with ExitStack() as stack:

        def opened(*settings: str, passcode: str = SECRET) -> tuple[ScratchGateway, ChromiumPage]:
            config = WEB / "gateway.toml"
            gateway = ScratchGateway(tmp_path / "gateway", settings=settings, config=config)
            add_user(gateway, "page", SECRET)
            stack.enter_context(gateway)
            server = PageServer(gateway.port, passcode)
            stack.callback(server.stop)
            page = stack.enter_context(ChromiumPage(tmp_path / "profile"))
            page.ask("open", url=f"http://{HOST}:{server.port}/")
            return gateway, page

        yield opened


@pytest.mark.interop
@INSTALLS
def test_the_page_says_that_an_address_is_full_and_sends_again(shop: Shop) -> None:
    full = "address-settings.orders.address-full-policy=FAIL"
    gateway, page = shop(full, "address-settings.orders.max-size-messages=5")
    page.wait(lambda: state(page) == "connected")
    page.ask("click", selector="#many")
    page.wait(lambda: state(page) == "refused")
    assert "'orders' is full: it holds 5 messages" in page.text("#reason")
    assert "(address-full)" in page.text("#reason")
    page.wait(lambda: page.text("#countdown").startswith("again in "))
    assert page.text("#kept") == "15 orders are kept and will be sent"
    assert saved(page) == 5
    with taking(gateway) as bodies:
        page.wait(lambda: saved(page) == 20, 60)
        page.wait(lambda: len(bodies) == 20)
    assert len({json.loads(body)["id"] for body in bodies}) == 20
    page.wait(lambda: state(page) == "connected")
    assert page.script("localStorage.length") == 0


@pytest.mark.interop
@INSTALLS
def test_the_page_says_that_it_is_held_back(shop: Shop) -> None:
    gateway, page = shop("address-settings.orders.max-size-messages=5")
    page.wait(lambda: state(page) == "connected")
    page.ask("click", selector="#many")
    page.wait(lambda: state(page) == "held")
    assert page.text("#kept").endswith("orders wait for a receipt")
    with taking(gateway) as bodies:
        page.wait(lambda: saved(page) == 20)
        page.wait(lambda: len(bodies) == 20)
    page.wait(lambda: state(page) == "connected")


@pytest.mark.interop
@INSTALLS
def test_an_order_that_will_never_do_waits_for_somebody(shop: Shop) -> None:
    _, page = shop('acceptors.all.max-message-size="16KiB"')
    page.wait(lambda: state(page) == "connected")
    kept = {"id": "wrong", "product": "tea" * 9999, "quantity": 1, "region": "east", "placed": 1}
    page.script(f"localStorage.setItem('order-board/wrong', {json.dumps(json.dumps(kept))})")
    page.ask("reload")
    page.wait(lambda: page.script("!document.getElementById('refused').hidden"))
    assert "1 refused: " in page.text("#refused")
    assert "(too-large)" in page.text("#refused")
    # The others go on.
    page.wait(lambda: state(page) == "connected")
    page.ask("press", key="Tab")
    page.ask("click", selector="#form .first")
    page.wait(lambda: saved(page) == 1)
    assert page.script("localStorage.length") == 1


@pytest.mark.interop
@INSTALLS
def test_a_wrong_login_is_told(shop: Shop) -> None:
    _, page = shop(passcode="another")
    page.wait(lambda: state(page) == "refused")
    assert "(not-authorized)" in page.text("#reason")


@contextmanager
def taking(gateway: ScratchGateway) -> Iterator[list[str]]:
    """Take orders as the worker does; gives the list that their bodies go to."""
    bodies: list[str] = []
    connection = stomp.Connection12([(HOST, gateway.stomp_port)])

    class Taker(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            bodies.append(frame.body)
            connection.ack(frame.headers["ack"])

    connection.set_listener("taker", Taker())
    connection.connect("page", SECRET, wait=True)
    connection.subscribe("/queue/orders", id="1", ack="client-individual")
    try:
        yield bodies
    finally:
        connection.disconnect()


class Board:
    """`python examples/web`, with what it says."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WEB), "--data", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self._lines.append(line)

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def wait_for(self, words: str, seconds: float) -> str:
        """Return what matches; fails when it ends or does not say it in time."""
        end = time.monotonic() + seconds
        while (found := re.search(words, self.said)) is None:
            assert time.monotonic() < end, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        return found[0]

    def type(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


@pytest.fixture
def board(tmp_path: Path, spark_environment: dict[str, str]) -> Iterator[Board]:
    path = {"PYTHONPATH": importing_environment()["PYTHONPATH"]}
    started = Board(tmp_path / "board", {**spark_environment, **path})
    yield started
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 0, started.said
    assert started.said.endswith("Everything is stopped.\n")


def listed_orders(page: ChromiumPage) -> list[str]:
    script = "[...document.querySelectorAll('#own .what')].map(one => one.textContent)"
    return list(page.script(script))


def pieces(page: ChromiumPage) -> Counter[str]:
    """Return the pieces of each product in the list of the page's orders."""
    placed: Counter[str] = Counter()
    for line in listed_orders(page):
        quantity, product = line.strip().split(" \u00d7 ")
        placed[product] += int(quantity)
    return placed


def totals(page: ChromiumPage) -> tuple[int, dict[str, int]]:
    """Return the orders, and the pieces of each product, that Spark has added up."""
    script = (
        "[...document.querySelectorAll('#by-product tr')].map(row => "
        "[row.cells[0].textContent.trim(), Number(row.cells[2].textContent.replaceAll(',', ''))])"
    )
    rows = {name: count for name, count in page.script(script) if count}
    return int(page.text("#all-orders").replace(",", "")), rows


def saved(page: ChromiumPage) -> int:
    return int(page.text("#saved"))


def state(page: ChromiumPage) -> str:
    return str(page.script("document.getElementById('banner').dataset.state"))


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.timeout(420)
def test_totals_are_the_confirmed_orders_also_when_the_gateway_is_killed(
    board: Board, tmp_path: Path
) -> None:
    with ChromiumPage(tmp_path / "profile") as page:
        url = board.wait_for(r"http://\S+/(?=\n\n)", 60)
        page.ask("open", url=url)
        page.wait(lambda: state(page) == "connected")
        # By keyboard, in the form; then twenty at once, while Spark has not even started.
        page.ask("select", selector="#product", text="mate")
        page.ask("select", selector="#region", text="west")
        page.ask("fill", selector="#quantity", text="7")
        assert page.text("#sum") == "35.70"
        page.ask("press", key="Enter")
        page.wait(lambda: saved(page) == 1)
        assert pieces(page) == {"mate": 7}
        page.ask("click", selector="#many")
        page.wait(lambda: saved(page) == 21)
        board.wait_for("Spark reads the orders", SPARK_SECONDS)
        page.wait(lambda: totals(page)[0] == 21)
        assert totals(page) == (21, pieces(page))

        # Some are on their way when the gateway goes, others are placed while it is away.
        page.ask("click", selector="#many")
        board.type("k")
        board.wait_for("killed", 20)
        page.wait(lambda: state(page) == "reconnecting")
        page.ask("click", selector="#many")
        page.wait(lambda: len(listed_orders(page)) == 61)
        waiting = page.script("document.querySelectorAll('li[data-state=waiting]').length")
        assert waiting == 61 - saved(page)
        assert page.text("#kept") == f"{waiting} orders are kept and will be sent"
        board.type("k")
        page.wait(lambda: saved(page) == 61, 60)
        page.wait(lambda: totals(page)[0] >= 61, 60)
        assert totals(page) == (61, pieces(page))
        assert state(page) == "connected"
        assert page.script("window.shifts") < GOOD_LAYOUT_SHIFT

        # As if the receipt of a saved order were lost: it is sent again, and counted once.
        before = pieces(page)
        kept = {
            "id": saved_id(page),
            "product": "tea",
            "quantity": 9,
            "region": "east",
            "placed": 1,
        }
        keep = f"localStorage.setItem('order-board/{kept['id']}', {json.dumps(json.dumps(kept))})"
        page.script(keep)
        page.ask("reload")
        page.wait(lambda: saved(page) == 1)
        page.wait(lambda: totals(page)[0] >= 61)  # from the gateway's last ones, no new batch
        page.ask("select", selector="#product", text="tea")
        page.ask("press", key="Tab")
        page.ask("fill", selector="#quantity", text="2")
        page.ask("press", key="Enter")
        page.wait(lambda: totals(page)[0] >= 62)
        assert totals(page) == (62, before + Counter(tea=2))
        assert page.script("localStorage.length") == 0

        # The worker stands still until the address is full: the page is held back, and told.
        counted, listed = totals(page)[1], pieces(page)
        board.type("w")
        for _ in range(11):
            page.ask("click", selector="#many")
        page.wait(lambda: state(page) == "held", 60)
        board.type("w")
        page.wait(lambda: saved(page) == 222, 60)
        page.wait(lambda: totals(page)[0] >= 282, 60)
        assert totals(page) == (282, Counter(counted) + pieces(page) - listed)

        check_requests(page.ask("seen"), url)
    board.process.send_signal(signal.SIGINT)
    board.process.wait(60)
    assert not any_left(board.said)


def saved_id(page: ChromiumPage) -> str:
    """Return the id of the order that the page placed first."""
    return str(page.script("document.querySelector('#own li:last-child').dataset.id"))


def check_requests(seen: dict[str, Any], url: str) -> None:
    """The page made no mistake, and asked nobody but its own server and the gateway."""
    assert seen["mistakes"] == []
    foreign = [
        one
        for one in seen["requests"]
        if not one.startswith((url, f"blob:{url}"))
        and not re.fullmatch(r"ws://127\.0\.0\.1:\d+/stomp", one)
    ]
    assert foreign == []
    assert any(one.startswith("ws://") for one in seen["requests"])


def any_left(said: str) -> bool:
    """Whether somebody still listens at a port that the board named."""
    for port in re.findall(r"127\.0\.0\.1:(\d+)", said):
        connection = http.client.HTTPConnection(HOST, int(port), timeout=5)
        try:
            connection.connect()
        except OSError:
            continue
        connection.close()
        return True
    return False
