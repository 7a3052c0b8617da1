"""What answers is absent, foreign, half or unwilling: one clear error each, and soon."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from gateway.trial.self_signed import self_signed
from pyspark_sluicegate.offsets import Partition, Span
from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.source import DefaultSource, StreamReader
from tests.spark.scripted import Reply, Script, arrow, part, rows, scripted, trailer
from tests.spark.test_source import SCHEMA

ATTACHED = {"fence": 1, "floor": {"orders": [1, 0]}}


def answer(fields: Any, status: int = 200) -> Reply:
    return status, json.dumps(fields).encode()


def source(url: str, **options: str) -> DefaultSource:
    given = {"url": url, "address": "orders", "subscription": "etl", "retryDeadline": "300ms"}
    given["readTimeout"] = "500ms"
    return DefaultSource(given | options)


def stream(url: str, **options: str) -> StreamReader:
    return source(url, **options).streamReader(SCHEMA)


def refusal(script: Script, what: Any) -> str:
    with pytest.raises(SluicegateError) as caught:
        what(script.url)
    return str(caught.value)


def begin(url: str) -> Any:
    return stream(url).initialOffset()


def plan(url: str) -> Any:
    reader = stream(url)
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def read(url: str) -> list[pa.RecordBatch]:
    partition = Partition([Span(url, "orders", 1, 0, 4, 100)])
    return list(stream(url).read(partition))


def snapshot(url: str) -> Any:
    return source(url).reader(SCHEMA).partitions()


@pytest.mark.parametrize(("status", "word"), [(401, "Give `token`"), (403, "may not")])
@pytest.mark.parametrize("what", [begin, snapshot, read])
def test_wrong_credentials_are_told_at_once(status: int, word: str, what: Any) -> None:
    with scripted(answer({"message": "You may not read streams."}, status)) as script:
        text = refusal(script, what)
    assert "You may not read streams." in text
    assert word in text
    assert len(script.asked) == 1


@pytest.mark.parametrize("what", [begin, snapshot])
@pytest.mark.parametrize("fields", [{}, [], 7, {"message": "hello"}])
def test_an_answer_of_something_else_is_told_at_once(fields: Any, what: Any) -> None:
    with scripted(answer(fields)) as script:
        text = refusal(script, what)
    assert "What answers there is no Sluicegate gateway" in text
    assert len(script.asked) == 1


def test_another_web_server_is_told_at_once() -> None:
    with scripted((404, b"<html>Not Found</html>")) as script:
        text = refusal(script, begin)
    assert "HTTP status 404; does the management listener of a gateway answer there?" in text


@pytest.mark.parametrize("left_out", ["losses", "heads", "end"])
def test_a_plan_with_a_part_missing_names_it(left_out: str) -> None:
    whole = {"losses": [], "heads": {}, "end": {}}
    half = {name: value for name, value in whole.items() if name != left_out}
    with scripted(answer(ATTACHED), answer(half)) as script:
        assert f":plan: the answer has no '{left_out}'" in refusal(script, plan)


def test_half_an_answer_is_asked_for_again_until_the_deadline() -> None:
    with scripted((200, b'{"fence": 1, "fl')) as script:
        text = refusal(script, begin)
    assert "gave up after 0.3 s (retryDeadline)" in text
    assert len(script.asked) > 1


@pytest.mark.parametrize("content", [b"", b"<html>", arrow(part([0, 1], 0, 2))[1][:-60]])
def test_rows_that_break_off_are_asked_for_again_until_the_deadline(content: bytes) -> None:
    with scripted((200, content)) as script:
        text = refusal(script, read)
    assert "reading 'orders' at" in text
    assert "gave up after 0.3 s" in text


def test_rows_without_what_the_gateway_says_of_them() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows([]).schema) as writer:
        writer.write_batch(rows([0, 1, 2, 3]))
    with scripted((200, sink.getvalue().to_pybytes())) as script:
        assert "/read: the answer has no" in refusal(script, read)
    with scripted(arrow(part([0, 1, 2, 3], 0, 4), (rows([]), {"rows": 4}))) as script:
        assert "/read: the answer has no 'losses'" in refusal(script, read)
    with scripted(arrow(part([0, 1, 2, 3], 0, 4), trailer(4))) as script:
        assert sum(map(len, read(script.url))) == 4


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    for what in (begin, snapshot, read):
        with pytest.raises(SluicegateError, match=r"cannot connect.*gave up after 0\.3 s"):
            what(url)


def test_files_that_cannot_be_read_are_told_with_their_option(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    with pytest.raises(SluicegateError, match=r"'tokenFile' names .*absent.*No such file"):
        stream("http://127.0.0.1:1", tokenFile=absent).initialOffset()
    with pytest.raises(SluicegateError, match=r"'tlsCaFile' names .*absent.*No such file"):
        stream("https://127.0.0.1:1", tlsCaFile=absent).initialOffset()
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(SluicegateError, match=r"'tlsCaFile' names .*broken"):
        stream("https://127.0.0.1:1", tlsCaFile=str(broken)).initialOffset()


def test_a_certificate_that_nobody_trusts_is_told_at_once(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with scripted(answer(ATTACHED), tls=context) as script:
        with pytest.raises(SluicegateError, match=r"is not trusted \(.*'tlsCaFile'"):
            stream(script.url).initialOffset()
        assert script.asked == []
        trusting = stream(script.url, tlsCaFile=str(pair.certificate))
        assert trusting.initialOffset()["q"] == {"orders": [1, 0]}


def test_a_token_is_never_in_an_error(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2\n")
    with scripted(answer({"message": "no"}, 401)) as script:
        with pytest.raises(SluicegateError) as caught:
            stream(script.url, tokenFile=str(secret)).initialOffset()
        assert script.asked[0][2]["Authorization"] == "Bearer hunter2"
    assert "hunter2" not in str(caught.value)


# ---- a plan that is not the batch that the checkpoint has


def offset(**places: list[int]) -> dict[str, Any]:
    return {"q": places, "s": "etl", "v": 1}


def planned(start: Any, end: Any, *losses: Any) -> Reply:
    told = {"start": start, "end": end, "heads": {}, "bytes": dict.fromkeys(end, 9)}
    return answer({**told, "first": {}, "losses": list(losses)})


FOREIGN_PLANS = {
    "half of it": planned({"orders": [1, 5]}, {"orders": [1, 7]}),
    "another life": planned({"orders": [2, 0]}, {"orders": [2, 4]}),
    "another start": planned({"orders": [1, 6]}, {"orders": [1, 9]}),
    "more of it": planned({"orders": [1, 5]}, {"orders": [1, 90]}),
}


@pytest.mark.parametrize("case", FOREIGN_PLANS)
def test_a_plan_of_another_range_is_refused_and_nothing_is_read(case: str) -> None:
    with scripted(answer(ATTACHED), FOREIGN_PLANS[case]) as script:
        reader = stream(script.url, failOnDataLoss="false")
        with pytest.raises(SluicegateError, match=r"has planned .* batch of the checkpoint is"):
            reader.partitions(offset(orders=[1, 5]), offset(orders=[1, 9]))
    assert [path.rpartition(":")[2] for path, _, _ in script.asked] == ["attach", "plan"]


def test_a_stream_that_is_gone_is_a_loss_and_not_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nothing = planned({}, {})
    with scripted(answer(ATTACHED), nothing) as script:
        text = refusal(
            script,
            lambda url: stream(url).partitions(offset(orders=[1, 5]), offset(orders=[1, 9])),
        )
    assert "orders (life 1): offsets 5 to 8 cannot be read" in text
    assert "failOnDataLoss=false" in text
    with scripted(answer(ATTACHED), nothing) as script:
        reader = stream(script.url, failOnDataLoss="false")
        assert reader.partitions(offset(orders=[1, 5]), offset(orders=[1, 9])) == []
    assert "offsets 5 to 8" in caplog.text


def test_what_a_batch_does_not_read_need_not_be_there() -> None:
    with scripted(answer(ATTACHED), planned({}, {})) as script:
        reader = stream(script.url)
        assert reader.partitions(offset(orders=[1, 5]), offset(orders=[1, 5])) == []


def test_a_checkpoint_of_other_gateways_is_refused() -> None:
    with scripted(answer(ATTACHED)) as script:
        both = stream(f"{script.url},http://127.0.0.1:9")
        low, high = offset(orders=[1, 5]), offset(orders=[1, 9])
        with pytest.raises(SluicegateError, match="a place of 'orders', which none of the"):
            both.partitions(low, high)
        with pytest.raises(SluicegateError, match="a place of 'orders', which none of the"):
            both.latestOffset(low, ReadAllAvailable())
    assert script.asked == []


@pytest.mark.parametrize("status", [500, 302, 307, 418])
@pytest.mark.parametrize("what", [begin, snapshot, read])
def test_a_status_of_something_else_is_told_at_once(status: int, what: Any) -> None:
    with scripted((status, b"")) as script:
        text = refusal(script, what)
    assert f"HTTP status {status}" in text
    assert len(script.asked) == 1


# ---- answers that come very slowly, or never end


class Dripping:
    """Answers each request with a head, and then a few bytes at a time for ever."""

    def __init__(self, head: bytes, drop: bytes, seconds: float) -> None:
        self.head, self.drop, self.seconds = head, drop, seconds
        self.over = threading.Event()
        self.asked = 0

    def __enter__(self) -> str:
        self.sock = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self.sock.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.sock.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.sock.accept()
                self.asked += 1
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.recv(65536)
            client.sendall(self.head)
            while not self.over.wait(self.seconds):
                client.sendall(self.drop)


SLOW = {
    "a head": b"",
    "a JSON answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
    "a refusal": b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
}


@pytest.mark.parametrize("what", [begin, snapshot, read])
@pytest.mark.parametrize("case", SLOW)
def test_a_gateway_that_drips_is_given_up(case: str, what: Any) -> None:
    drop = b"1\r\n \r\n" if case == "chunks" else b"H"
    begun = time.monotonic()
    with Dripping(SLOW[case], drop, 0.05) as url, pytest.raises(SluicegateError) as caught:
        what(url)
    assert "gave up after 0.3 s" in str(caught.value)
    assert "slower than" in str(caught.value) or "timed out" in str(caught.value)
    assert time.monotonic() - begun < 5


def test_an_answer_without_end_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n"
    with Dripping(head, b"[" * (1 << 20), 0.0) as url, pytest.raises(SluicegateError) as caught:
        begin(url)
    assert "is longer than" in str(caught.value)
