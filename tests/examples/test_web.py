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
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.trial.scratch import HOST, free_ports, importing_environment
from tests.examples.chromium_page import ChromiumPage
from tests.interop.node import ORDER_BOARD, NoNodeError, install

WEB = Path(__file__).resolve().parents[2] / "examples" / "web"
SECRET = "only-for-the-page"
GATEWAY_PORT = 5999
#: Chromium's own bound between a page that stands still enough and one that does not.
GOOD_LAYOUT_SHIFT = 0.1
SPARK_SECONDS = 150.0


class PageServer:
    """A running `server.py`."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(WEB / "server.py"), "--port", str(self.port)),
                *("--gateway-port", str(GATEWAY_PORT)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**importing_environment(), "ORDER_BOARD_PASSCODE": SECRET},
        )
        assert self.process.stdout.readline() == "ready\n"

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
    started.process.stdin.close()
    assert started.process.wait(10) == 0


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
    program = loaded("__main__", monkeypatch)
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
    program = loaded("__main__", monkeypatch)
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('ready')"
    part = program.Part("worker", tmp_path / "log", "-c", code, env=importing_environment())
    assert part.ready.wait(20)
    part.pause()
    part.stop()
    with pytest.raises(program.PartFailedError, match="status 0"):
        part.check()


@pytest.mark.interop
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


def pieces(page: ChromiumPage) -> Counter[str]:
    """Return the pieces of each product in the list of the page's orders."""
    placed: Counter[str] = Counter()
    for line in page.script("[...document.querySelectorAll('#own .what')].map(n => n.textContent)"):
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
        waiting = page.script("document.querySelectorAll('li[data-state=waiting]').length")
        assert waiting >= 20
        assert f"{waiting} orders are kept" in page.text("#kept")
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
