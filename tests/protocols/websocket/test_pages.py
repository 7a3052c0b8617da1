"""What a browser gets that looks at a port: a page where it asks for one, and nothing to run."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from protocols.websocket.pages import page
from tests.protocols.websocket.client import request
from tests.protocols.websocket.inner import Built
from tests.protocols.websocket.test_handshake import ask

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_a_browser_gets_a_page_with_strict_headers() -> None:
    status, headers, text = ask(request("/", Upgrade=None, Connection="keep-alive", Accept=BROWSER))
    assert (status, headers["content-type"]) == (426, "text/html; charset=utf-8")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert "a message gateway, and no web site" in text
    assert "AMQP and STOMP over WebSocket, at / /ws /stomp /amqp" in text
    tags = Tags(text)
    assert set(tags.names) == {"html", "head", "meta", "title", "body", "h1", "p"}
    assert not {"src", "href", "style", "onload"} & set(tags.attributes)


@pytest.mark.parametrize("accept", [None, "*/*", "application/json"])
def test_everybody_else_gets_text(accept: str | None) -> None:
    _, headers, text = ask(request("/", Upgrade=None, Accept=accept))
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert text.startswith("This is a port of Sluicegate")


def test_a_path_that_is_not_there_and_a_foreign_page_are_shown_too() -> None:
    status, headers, text = ask(request("/<script>", Upgrade=None, Accept=BROWSER))
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<script>" not in text
    status, _, text = ask(request(Origin="http://<script>.example", Accept=BROWSER))
    assert status == 403
    assert "<script>" not in text


def test_what_is_said_is_escaped() -> None:
    assert "<b>" not in page("<b>", "<b>\n\"'&")
    assert "<p>&quot;&#x27;&amp;</p>" in page("<b>", "<b>\n\"'&")


def test_head_is_answered_without_a_body() -> None:
    for accept in (None, BROWSER):
        answers = []
        for method in ("GET", "HEAD"):
            session = Built().session
            session.receive_data(request("/", method=method, Upgrade=None, Accept=accept), 1.0)
            answers.append(session.data_to_send())
            assert session.closing
        assert answers[0].partition(b"\r\n\r\n")[0] == answers[1].removesuffix(b"\r\n\r\n")
    # It asks for nothing else: a WebSocket begins with GET.
    assert ask(request(method="HEAD").replace(b"HEAD", b"PUT"))[0] == 405
    session = Built().session
    session.receive_data(request(method="HEAD"), 1.0)
    assert session.data_to_send().startswith(b"HTTP/1.1 405 ")


def test_sockjs_is_told_where_to_go() -> None:
    status, headers, text = ask(request("/stomp/info?t=1", Upgrade=None, Accept="*/*"))
    assert status == 404
    assert "SockJS is not spoken here" in text
    assert headers["content-type"] == "text/plain; charset=utf-8"
