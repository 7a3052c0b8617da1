"""0 lost, 0 doubled: an archive that dies at each of its steps, forgets, or is not alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from pyspark_sluicegate.archive.ledger import OtherWriterError
from pyspark_sluicegate.archive.table import TakenError, open_table
from pyspark_sluicegate.client import StatusError
from pyspark_sluicegate.options import SluicegateError
from tests.spark.archive.jobs import Job, at, table_rows
from tests.spark.support import Server

KEY = ("gateway", "orders", 1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "streams")
    made.make("orders")
    made.fill("orders", 3000)
    yield made
    made.kill()


def job(server: Server, tmp_path: Path, **options: str) -> Job:
    given = {"url": server.url, "address": "orders", "maxMessagesPerTrigger": "1000"}
    return Job(tmp_path / "table", **{**given, **options})


def whole(tmp_path: Path, end: int = 3000) -> bool:
    return table_rows(tmp_path / "table") == {KEY: list(range(end))}


def test_all_is_archived_in_one_commit_a_batch_and_the_floor_follows(
    server: Server, tmp_path: Path
) -> None:
    one = job(server, tmp_path)
    one.run()
    assert whole(tmp_path)
    assert [made.rows for made in one.committed] == [1000, 1000, 1000]
    assert open_table(at(tmp_path / "table")).version == 4  # made, gateway noted, three batches
    assert server.floor("orders", "archive") == 3000


@pytest.mark.parametrize("step", ["planned", "written", "committed"])
def test_a_driver_killed_at_a_step_goes_on_from_its_checkpoint(
    server: Server, tmp_path: Path, step: str
) -> None:
    one = job(server, tmp_path)
    for _ in range(3):
        assert one.plan()
        if step != "planned":
            found = one.write()
        if step == "committed":
            one.commit(found)
        one.start()  # nothing was noted
        replayed = one.commit(one.write())
        assert replayed.rows == (0 if step == "committed" else 1000)
        one.note()
    one.run()
    assert whole(tmp_path)


def test_a_lost_checkpoint_costs_looking_and_no_message(server: Server, tmp_path: Path) -> None:
    job(server, tmp_path).run()
    server.fill("orders", 500)
    other = job(server, tmp_path, subscription="again")
    other.run()
    assert whole(tmp_path, 3500)
    assert sum(made.rows for made in other.committed) == 500


def test_a_batch_across_the_tables_end_is_trimmed(server: Server, tmp_path: Path) -> None:
    job(server, tmp_path, maxMessagesPerTrigger="700").run()
    server.fill("orders", 500)
    other = job(server, tmp_path, subscription="again", maxMessagesPerTrigger="3200")
    other.run()
    assert whole(tmp_path, 3500)
    files = sorted((f.first, f.end) for f in open_table(at(tmp_path / "table")).files())
    assert (3000, 3200) in files


def test_no_file_is_left_that_no_commit_has(server: Server, tmp_path: Path) -> None:
    job(server, tmp_path).run()
    server.fill("orders", 100)
    job(server, tmp_path, subscription="again", maxMessagesPerTrigger="5000").run()
    there = {
        str(p.relative_to(tmp_path / "table")) for p in tmp_path.glob("table/gateway*/**/*.p*")
    }
    assert there == {one.path for one in open_table(at(tmp_path / "table")).files()}


def test_two_drivers_on_one_subscription(server: Server, tmp_path: Path) -> None:
    first, second = job(server, tmp_path), job(server, tmp_path)
    assert first.plan()
    assert second.plan()
    for one in (first, second):
        one.commit(one.write())
        one.note()
    with pytest.raises(StatusError, match="attached again"):
        first.run()
    second.run()
    assert whole(tmp_path)


def test_of_two_archives_into_one_table_the_older_stops(server: Server, tmp_path: Path) -> None:
    first, second = job(server, tmp_path), job(server, tmp_path, subscription="another")
    assert first.plan()
    first.commit(first.write())
    first.note()
    second.run()
    server.fill("orders", 100)
    with pytest.raises(OtherWriterError, match=r"Another archive writes 'orders'.*ends at 3000"):
        first.run()
    second.run()
    assert whole(tmp_path, 3100)


def test_two_archives_at_the_same_moment(server: Server, tmp_path: Path) -> None:
    """Both look, both write: one commit is taken, the other finds that it has come too late."""
    first, second = job(server, tmp_path), job(server, tmp_path, subscription="another")
    assert first.plan()
    assert second.plan()
    made = first.write(), second.write()
    table = second.committer.open()
    looked = table.refresh
    table.refresh = lambda: None  # type: ignore[method-assign]
    first.commit(made[0])
    calls = []

    def refresh() -> None:
        calls.append(1)
        if len(calls) > 1:
            looked()

    table.refresh = refresh  # type: ignore[method-assign]
    found = [dict(row) for row in made[1]]
    for row in found:
        row.pop("identity")
    second.committer._known["gateway"] = "as it was seen"
    from pyspark_sluicegate.archive.layout import FileFacts

    late = second.committer.commit([FileFacts(**row) for row in found], second.query, 0)
    assert late.rows == 0
    assert len(calls) == 2, "the first try met the other's commit"
    assert table_rows(tmp_path / "table") == {KEY: list(range(1000))}


def test_a_commit_whose_answer_is_lost_keeps_its_files(server: Server, tmp_path: Path) -> None:
    """It looks like another writer's commit; what it added is the table's, and nobody else's."""
    one = job(server, tmp_path)
    one.run()
    server.fill("orders", 1500)
    table = one.committer.open()
    real = table.commit
    lost = []

    def commit(*args: Any) -> None:
        real(*args)
        if not lost:
            lost.append(1)
            raise TakenError("the answer was lost")

    table.commit = commit  # type: ignore[method-assign]
    one.run()
    assert lost
    assert whole(tmp_path, 4500)
    server.fill("orders", 10)
    one.run()
    assert whole(tmp_path, 4510)


def test_a_checkpoint_that_is_older_than_the_table(server: Server, tmp_path: Path) -> None:
    one = job(server, tmp_path)
    one.run()
    one.checkpoint = {"offsets": one.checkpoint["offsets"][:1], "commits": 1}
    server.fill("orders", 300)
    one.start()
    one.options["maxMessagesPerTrigger"] = "5000"
    one.start()
    with pytest.raises(SluicegateError, match="put back to an older state"):
        one.run()
    assert whole(tmp_path)


def test_what_retention_took_is_a_gap_unless_losses_are_named(tmp_path: Path) -> None:
    server = Server(tmp_path / "streams", segmentBytes=20_000, retentionBytes=120_000)
    try:
        server.make("orders")
        server.fill("orders", 500)
        one = job(server, tmp_path)
        one.run()
        for _ in range(8):
            server.fill("orders", 1000)
        first = server.stream("orders")["first"]
        assert first > 500
        one.start()
        with pytest.raises(SluicegateError, match="retention dropped them"):
            one.run()
        one.options["failOnDataLoss"] = "false"
        one.start()
        one.run()
        assert table_rows(tmp_path / "table") == {KEY: [*range(500), *range(first, 8500)]}
        (lost,) = (f for f in open_table(at(tmp_path / "table")).files() if f.lost)
        assert (lost.first, lost.end, lost.rows) == (500, first, 0)
    finally:
        server.kill()


def test_a_subscription_that_begins_behind_the_table_is_a_gap(
    server: Server, tmp_path: Path
) -> None:
    job(server, tmp_path).run()
    server.fill("orders", 500)
    late = job(server, tmp_path, subscription="late", startingOffsets="latest")
    late.plan()
    server.fill("orders", 100)
    assert late.plan()
    with pytest.raises(SluicegateError, match="500 offsets would be missing"):
        late.commit(late.write())
    assert whole(tmp_path)


def test_a_stream_made_anew_is_another_life(server: Server, tmp_path: Path) -> None:
    one = job(server, tmp_path)
    one.run()
    server.call("DELETE", "/api/v1/streams/orders")
    server.make("orders")
    server.fill("orders", 100)
    one = job(server, tmp_path)
    one.run()
    found = table_rows(tmp_path / "table")
    assert found == {KEY: list(range(3000)), ("gateway", "orders", 2): list(range(100))}


def test_many_addresses_by_a_pattern_and_one_that_comes_later(
    server: Server, tmp_path: Path
) -> None:
    for name in ("news.eu", "news.us", "other"):
        server.make(name)
    server.fill("news.eu", 300)
    one = Job(tmp_path / "table", url=server.url, addressPattern="news.#")
    one.run()
    assert table_rows(tmp_path / "table") == {("gateway", "news.eu", 1): list(range(300))}
    server.make("news.asia")
    server.fill("news.asia", 200)
    server.fill("news.us", 10)
    server.fill("other", 5)
    one.run()
    found = table_rows(tmp_path / "table")
    assert {key[1]: len(offsets) for key, offsets in found.items()} == {
        "news.asia": 200, "news.eu": 300, "news.us": 10
    }  # fmt: skip
    assert {s: server.floor(s, "archive") for s in ("news.asia", "news.eu", "news.us")} == {
        "news.asia": 200, "news.eu": 300, "news.us": 10
    }  # fmt: skip
    offset = json.loads(one.checkpoint["offsets"][-1])
    assert offset["q"] == {"news.asia": [1, 200], "news.eu": [1, 300], "news.us": [1, 10]}


def test_several_gateways_and_two_of_one_name(tmp_path: Path) -> None:
    servers = [Server(tmp_path / name, name=name) for name in ("a", "b")]
    double = Server(tmp_path / "double", name="a")
    try:
        for one in (*servers, double):
            one.make("orders")
            one.fill("orders", 100)
        url = ",".join(one.url for one in servers)
        Job(tmp_path / "table", url=url, address="orders").run()
        whole = {(name, "orders", 1): list(range(100)) for name in ("a", "b")}
        assert table_rows(tmp_path / "table") == whole
        wrong = Job(tmp_path / "table", url=double.url, address="orders", subscription="x")
        double.fill("orders", 100)
        with pytest.raises(SluicegateError, match="another gateway that is called 'a'"):
            wrong.run()
        assert table_rows(tmp_path / "table") == whole
    finally:
        for one in (*servers, double):
            one.kill()
