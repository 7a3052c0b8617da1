"""The source's HTTP client: what it reads, what it says when the gateway does not answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from pyspark_sluicegate.client import Gateway, StatusError
from pyspark_sluicegate.options import SluicegateError, parse_options
from tests.spark.scripted import Script, scripted


def make(script: Script, **options: str) -> Gateway:
    given = {"url": script.url, "address": "a", "retryDeadline": "2s"} | options
    return Gateway(script.url, parse_options(given))


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_gateway_is_asked_again(status: int) -> None:
    with scripted((status, b'{"message": "later"}'), (200, b'{"n": 1}')) as script:
        assert make(script).call("/heads", {"address": "a"}) == {"n": 1}
    assert [body for _, body, _ in script.asked] == [{"address": "a"}] * 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_refusal_is_told_at_once(status: int) -> None:
    with scripted((status, b'{"message": "no", "losses": [{"a": 1}]}')) as script:
        with pytest.raises(StatusError, match="/heads: no") as caught:
            make(script).call("/heads", {})
        assert caught.value.status == status
        assert caught.value.losses == [{"a": 1}]
        assert ("`token`" in str(caught.value)) is (status == 401)
    assert len(script.asked) == 1


def test_an_answer_that_is_no_json_is_no_answer() -> None:
    with scripted((200, b"<html>"), (200, b"{}")) as script:
        assert make(script).call("/heads", {}) == {}
    with scripted((404, b"<html>")) as script, pytest.raises(StatusError, match="HTTP status 404"):
        make(script).call("/heads", {})


def test_nobody_there_is_told_after_the_deadline() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        script = Script()
        script.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(SluicegateError, match=r"cannot connect.*gave up after 0\.2 s"):
        make(script, retryDeadline="200ms").call("/heads", {})


def test_connections_are_kept_and_a_stale_one_costs_one_try() -> None:
    with scripted((200, b"{}")) as script:
        gateway = make(script)
        for _ in range(3):
            gateway.call("/heads", {})
        connection, response = gateway.post("/heads", {})
        sock = connection.sock
        gateway.drain(connection, response)
        sock.shutdown(socket.SHUT_RDWR)
        assert gateway.call("/heads", {}) == {}
    assert len(script.asked) in (5, 6)


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({}, None),
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "ü", "password": "p:w"}, "Basic w7w6cDp3"),
    ],
)
def test_logins(options: dict[str, Any], header: str | None) -> None:
    with scripted((200, b"{}")) as script:
        make(script, **options).call("/heads", {})
    assert script.asked[0][2].get("Authorization") == header


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with scripted((200, b"{}")) as script:
        gateway = make(script, tokenFile=str(path))
        for token in ("one", "two"):
            path.write_text(token + "\n")
            gateway.call("/heads", {})
    logins = [headers["Authorization"] for _, _, headers in script.asked]
    assert logins == ["Bearer one", "Bearer two"]
