"""The calls of the sink against the real core: bounds, repeats, refusals, full addresses."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from twisted.internet.defer import CancelledError

from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy, PageFullPolicy
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal
from tests.broker.core import Taker
from tests.management.core import limited
from tests.sink.core import Later, SinkCore, numbers, stream, written, written_all

STAGE = "/stages/p/0/0/a"
HALVES = (range(1_000), range(1_000, 2_000))


@pytest.fixture
def core(tmp_path: Path) -> SinkCore:
    return SinkCore(tmp_path)


def published(core: SinkCore, *stages: tuple[int, str, int], **fields: Any) -> Any:
    """Commit and let it go on to its end; returns the answer."""
    answers = core.commit(*stages, **fields)
    core.run(0.5)
    (answer,) = answers
    return answer


# ---- a batch


def test_a_batch_is_seen_whole_once_it_is_committed(core: SinkCore) -> None:
    assert core.stage(stream(3))[:2] == (200, {"rows": 3})
    assert core.stage(stream(2, first=3), "/stages/p/0/1/b")[:2] == (200, {"rows": 2})
    assert "q" not in core.gateway.queues, "a stage publishes nothing"
    answer = published(core, (0, "a", 3), (1, "b", 2))
    assert answer[:2] == (200, {"done": True, "messages": 5, "total": 5})
    assert core.bodies() == numbers(5)
    assert len(core.sink.staging) == 0, "its stages are gone"
    status, shown, _ = core.call("GET", "/producers/p")
    assert (status, shown["committed"], shown["batch"]) == (200, 0, None)


def test_the_answer_waits_for_the_disk(core: SinkCore) -> None:
    core.stage(stream(3))
    answers = core.commit((0, "a", 3), waitMs=10_000)
    for _ in range(5):
        core.turn()
        core.clock.advance(0.01)
    assert answers == []
    assert core.gateway.queues["q"].ready_count == 0, "nor is it handed out before"
    core.run(0.3)
    assert answers[0][0] == 200
    assert core.gateway.queues["q"].ready_count == 3


def test_a_commit_that_comes_again_changes_nothing(core: SinkCore) -> None:
    core.stage(stream(3))
    first, again = core.commit((0, "a", 3)), core.commit((0, "a", 3))
    core.run(0.5)
    assert [first[0][0], again[0][0]] == [200, 200]
    # Spark repeats the batch: other stages, other cuts.
    core.stage(stream(3), "/stages/p/0/0/other")
    assert published(core, (0, "other", 3))[:2] == (
        200,
        {"done": True, "messages": 0, "total": 0},
    )
    assert core.bodies() == numbers(3)
    assert len(core.sink.staging) == 0


def test_a_commit_without_rows_is_remembered(core: SinkCore) -> None:
    assert published(core, batch=3)[:2] == (200, {"done": True, "messages": 0, "total": 0})
    assert core.call("GET", "/producers/p")[1]["committed"] == 3


def test_a_commit_of_a_stage_that_is_not_there_does_nothing(core: SinkCore) -> None:
    core.stage(stream(3))
    status, shown, _ = published(core, (0, "a", 3), (1, "gone", 2))
    assert (status, shown["code"]) == (404, "not-found")
    assert "stage of partition 1 with 2 rows is not here" in shown["message"]
    assert "sink.stage-expiry" in shown["message"]
    assert core.call("GET", "/producers/p")[0] == 404
    assert "q" not in core.gateway.queues


# ---- stages


def test_a_piece_may_come_again_and_none_behind_a_gap(core: SinkCore) -> None:
    data = stream(50)
    assert core.call("POST", STAGE + "?offset=0", raw=data[:100])[1] == {"size": 100}
    assert core.call("POST", STAGE + "?offset=0", raw=data[:100])[1] == {"size": 100}
    status, shown, _ = core.call("POST", STAGE + "?offset=150", raw=data[150:])
    assert (status, shown["code"]) == (404, "not-found")
    assert "has 100 bytes here, and the piece begins at 150" in shown["message"]
    assert core.call("POST", STAGE + "?offset=60", raw=data[60:])[1] == {"size": len(data)}
    assert core.stage(data)[:2] == (200, {"rows": 50})
    seal = {"size": len(data), "crc32": 0}
    assert core.call("POST", STAGE + ":seal", seal)[:2] == (200, {"rows": 50}), "it is sealed"
    assert core.call("POST", STAGE + "?offset=0", raw=data)[0] == 422


def test_a_stage_that_is_not_what_was_sent_is_deleted(core: SinkCore) -> None:
    data = stream(5)
    core.call("POST", STAGE + "?offset=0", raw=data)
    assert core.call("POST", STAGE + ":seal", {"size": 7, "crc32": 0})[0] == 404
    status, shown, _ = core.call("POST", STAGE + ":seal", {"size": len(data), "crc32": 1})
    assert status == 422
    assert "checksum" in shown["message"]
    assert len(core.sink.staging) == 0
    assert core.files.found() == []


BAD_STAGES = {
    "no Arrow": (b"hello", "no Arrow stream"),
    "cut": (stream(5_000)[:9_000], "no Arrow stream"),
    "bad address": (stream(2, address="$x"), "Row 0: The address name"),
    "bad row": (stream(2, priority=pa.array([1, 12])), "Row 1: the column 'priority' (12)"),
    "bad offsets": (
        written(
            pa.RecordBatch.from_arrays(
                [
                    pa.Array.from_buffers(
                        pa.binary(),
                        2,
                        [None, pa.py_buffer(b"\0\0\0\0\xff\0\0\0\x02\0\0\0"), pa.py_buffer(b"ab")],
                    )
                ],
                names=["body"],
            )
        ),
        "no Arrow stream",
    ),
}


@pytest.mark.parametrize("case", BAD_STAGES)
def test_a_stage_that_cannot_be_published_is_refused_at_its_seal(case: str, core: SinkCore) -> None:
    data, rule = BAD_STAGES[case]
    status, shown, _ = core.stage(data)
    assert status == 422
    assert rule in shown["message"]
    assert core.files.found() == []


BOUNDS: dict[str, tuple[dict[str, int], int, str]] = {
    "of one": ({"stage_max_size": 500}, 413, "sink.stage-max-size is 500, set by default"),
    "of all": ({"staged_max_size": 500}, 503, "sink.staged-max-size is 500, set by default"),
    "of many": ({"stages_max": 1}, 503, "sink.stages-max is 1, set by default"),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_stages_are_bounded(case: str, tmp_path: Path) -> None:
    bounds, wanted, rule = BOUNDS[case]
    core = SinkCore(tmp_path, **bounds)
    assert core.call("POST", STAGE + "?offset=0", raw=b"x" * 400)[0] == 200
    path = STAGE + "?offset=400" if case == "of one" else "/stages/p/0/1/b?offset=0"
    status, shown, headers = core.call("POST", path, raw=b"x" * 400)
    assert status == wanted
    assert rule in shown["message"]
    assert ("Retry-After" in headers) is (wanted == 503)
    assert core.sink.staging.bytes == 400
    assert core.call("DELETE", STAGE)[0] == 204
    assert core.sink.staging.bytes == 0
    assert core.call("POST", "/stages/p/0/1/b?offset=0", raw=b"x" * 400)[0] == 200


def test_nothing_is_staged_onto_a_full_disk(core: SinkCore) -> None:
    disk = core.gateway.pressure.disk
    disk.set(Refusal(code=Code.DISK_FULL, text="The disk is full: 7 of 9.", transient=True, wait=3))
    status, shown, headers = core.call("POST", STAGE + "?offset=0", raw=b"x")
    assert (status, shown["code"], headers["Retry-After"]) == (503, "disk-full", "3")
    assert "7 of 9" in shown["message"]
    disk.set(None)
    core.room = False
    status, shown, headers = core.call("POST", STAGE + "?offset=0", raw=b"x")
    assert (status, shown["code"]) == (503, "disk-full")
    assert "min-disk-free" in shown["message"]
    assert core.sink.staging.bytes == 0


def test_a_piece_that_the_disk_refused_comes_again(core: SinkCore) -> None:
    data = stream(50)
    core.call("POST", STAGE + "?offset=0", raw=data[:100])
    core.room = False
    assert core.call("POST", STAGE + "?offset=100", raw=data[100:])[0] == 503
    assert core.sink.staging.bytes == 100
    core.room = True
    core.call("POST", STAGE + "?offset=100", raw=data[100:])
    assert core.stage(data)[:2] == (200, {"rows": 50})


def test_a_client_that_leaves_takes_nothing_with_it(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, blocking=Later())
    data = stream(5)
    for path, body in (("?offset=0", data), (":seal", None)):
        seal = {"size": len(data), "crc32": zlib.crc32(data)}
        answer = core.ask_for("POST", STAGE + path, seal if body is None else None, raw=body)
        answer.addErrback(lambda failure: failure.trap(CancelledError))
        answer.cancel()
        core.work()
    assert core.post("POST", STAGE + ":seal", seal)[0][:2] == (200, {"rows": 5})
    commit = {"batch": 0, "stages": [{"partition": 0, "attempt": "a", "rows": 5}]}
    answer = core.ask_for("POST", "/producers/p:commit", commit)
    answer.addErrback(lambda failure: failure.trap(CancelledError))
    core.work()
    answer.cancel()
    for _ in range(5):
        core.work()
        core.run(0.2)
    assert core.bodies() == numbers(5)
    assert core.call("GET", "/producers/p")[1]["committed"] == 0


def test_a_stage_that_nobody_asks_for_expires(core: SinkCore) -> None:
    core.stage(stream(3))
    core.call("POST", "/stages/p/1/0/b?offset=0", raw=b"x" * 9)
    core.clock.advance(200)
    core.call("POST", "/stages/p/1/0/b?offset=9", raw=b"x" * 9)
    core.sink.tick()
    assert len(core.sink.staging) == 2
    core.clock.advance(100)
    core.sink.tick()
    assert [stage.key.batch for stage in core.sink.staging] == [1]
    assert [size for _, size in core.files.found()] == [18]
    status, shown, _ = published(core, (0, "a", 3))
    assert status == 404
    assert "kept for 300 s (sink.stage-expiry)" in shown["message"]


NAMES = {
    "producer": "/stages/" + "p" * 201 + "/0/0/a",
    "batch": "/stages/p/x/0/a",
    "large batch": "/stages/p/9223372036854775808/0/a",
    "partition": "/stages/p/0/4294967296/a",
    "attempt": "/stages/p/0/0/..%2Fetc",
}


@pytest.mark.parametrize("case", NAMES)
def test_impossible_names_are_refused(case: str, core: SinkCore) -> None:
    status, shown, _ = core.call("POST", NAMES[case] + "?offset=0", raw=b"x")
    assert status == 422, shown
    assert len(core.sink.staging) == 0


def test_a_stage_that_was_not_sealed_is_not_there_whatever_a_commit_says(core: SinkCore) -> None:
    data = stream(3)
    assert core.call("POST", STAGE + "?offset=0", raw=data)[0] == 200
    status, shown, _ = published(core, (0, "a", -1))  # as many rows as an unfinished stage has
    assert (status, shown["code"]) == (404, "not-found")
    assert core.call("GET", "/producers/p")[0] == 404


def test_a_partition_counts_by_one_stage(core: SinkCore) -> None:
    core.stage(stream(3))
    core.stage(stream(3), "/stages/p/0/0/b")
    status, shown, _ = published(core, (0, "a", 3), (0, "b", 3))
    assert status == 422
    assert "names partition 0 twice" in shown["message"]
    assert published(core, (0, "a", 3), (0, "a", 3))[0] == 422
    assert published(core, (0, "b", 3))[0] == 200
    assert core.bodies() == numbers(3)


# ---- addresses


def test_a_full_address_that_blocks_is_waited_for(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.BLOCK, max_size_messages=10))
    core.stage(stream(25))
    answers = core.commit((0, "a", 25))
    core.run(1.5)
    status, shown, headers = answers[0]
    assert (status, shown["code"], shown["messages"], shown["total"]) == (
        503,
        "address-full",
        10,
        25,
    )
    assert shown["message"].startswith("Row 10 of a partition, for 'q': Address 'q' is full")
    assert headers["Retry-After"] == "5"
    assert core.call("GET", "/producers/p")[1]["waits"]["code"] == "address-full"
    assert len(core.sink.staging) == 1
    core.clock.advance(400)
    core.sink.tick()
    assert len(core.sink.staging) == 1, "what is being published does not expire"
    assert core.call("DELETE", STAGE)[0] == 204
    assert len(core.sink.staging) == 1, "nor does an abort take it"
    for first in (0, 10):
        assert core.bodies() == numbers(10, first)
        core.gateway.queues["q"].purge()
        core.run(0.5)
    assert published(core, (0, "a", 25))[0] == 200
    assert core.bodies() == numbers(5, 20)


def test_a_full_address_that_fails_refuses_a_batch_before_anything_of_it_is_there(
    tmp_path: Path,
) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.FAIL, max_size_messages=10))
    core.stage(stream(4))
    assert published(core, (0, "a", 4))[0] == 200
    core.stage(stream(4), "/stages/p/1/0/a")
    core.stage(stream(3, first=4), "/stages/p/1/1/a")
    status, shown, headers = published(core, (0, "a", 4), (1, "a", 3), batch=1)
    assert (status, shown["code"], headers["Retry-After"]) == (503, "address-full", "5")
    assert "'q' has no room for the 7 messages of the batch: it holds 4" in shown["message"]
    assert "max-size-messages is 10. None is published." in shown["message"]
    assert core.bodies() == numbers(4)
    assert core.call("GET", "/producers/p")[1]["batch"] is None, "it has not begun"
    core.gateway.queues["q"].purge()
    core.run(0.2)
    assert published(core, (0, "a", 4), (1, "a", 3), batch=1)[0] == 200
    assert core.bodies() == numbers(7)


def test_a_batch_that_never_fits_is_refused_for_good(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.FAIL, max_size_messages=10))
    core.stage(stream(11))
    status, shown, headers = published(core, (0, "a", 11))
    assert (status, shown["code"], headers.get("Retry-After")) == (409, "address-full", None)
    assert "Write smaller batches" in shown["message"]
    assert core.bodies() == []
    core.stage(stream(10), "/stages/p/1/0/a")
    assert published(core, (0, "a", 10), batch=1)[0] == 200


def test_room_that_others_take_meanwhile_is_waited_for(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.FAIL, max_size_messages=2_000))
    core.stage(stream(1_500))
    answers = core.commit((0, "a", 1_500))  # judged, and its first slice is published
    core.send("q", *[b"other"] * 800)
    core.run(1.5)
    assert (answers[0][0], answers[0][1]["code"]) == (503, "address-full")
    shown = core.call("GET", "/producers/p")[1]
    assert (shown["messages"], shown["waits"]["code"]) == (1_200, "address-full")
    core.gateway.queues["q"].purge()
    core.run(0.5)
    assert core.bodies() == numbers(300, 1_200)
    assert published(core, (0, "a", 1_500))[0] == 200


def test_a_topic_without_subscribers_has_room_for_everything(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("t", FullPolicy.FAIL, max_size_messages=10))
    core.stage(stream(25, address="/topic/t"))
    assert published(core, (0, "a", 25))[0] == 200


def test_a_full_address_that_drops_takes_all(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.DROP, max_size_messages=10))
    core.stage(stream(25))
    assert published(core, (0, "a", 25))[0] == 200
    assert core.bodies() == numbers(10)


def test_a_full_address_that_pages_goes_on_with_pages(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.PAGE, max_size_messages=10))
    core.stage(stream(250))
    assert published(core, (0, "a", 250))[0] == 200
    queue = core.gateway.queues["q"]
    assert queue.ready_count + queue.paged_count == 250
    assert queue.paged_count > 200


def test_an_operator_holds_a_batch_back(core: SinkCore) -> None:
    core.gateway.directory.make_address("q")
    core.gateway.block_address("q", blocked=True)
    core.stage(stream(5))
    answers = core.commit((0, "a", 5))
    core.run(1.5)
    assert answers[0][0] == 503
    assert answers[0][1]["messages"] == 0
    core.gateway.block_address("q", blocked=False)
    assert published(core, (0, "a", 5))[0] == 200


def test_a_disk_that_is_full_meanwhile_holds_a_batch_back(core: SinkCore) -> None:
    core.stage(stream(5))
    disk = core.gateway.pressure.disk
    disk.set(Refusal(code=Code.DISK_FULL, text="The disk is full.", transient=True))
    answers = core.commit((0, "a", 5))
    core.run(1.5)
    assert (answers[0][0], answers[0][1]["code"]) == (503, "disk-full")
    disk.set(None)
    assert published(core, (0, "a", 5))[0] == 200
    assert core.bodies() == numbers(5)


def test_an_address_that_may_not_be_made_refuses_the_whole_batch(tmp_path: Path) -> None:
    strict = SettingsEntry(match="no.#", values={"auto_create_addresses": False}, origins={})
    core = SinkCore(tmp_path, strict)
    batch = pa.record_batch(
        {
            "body": pa.array([b"b#0", b"b#1", b"b#2", b"b#3"]),
            "address": pa.array(["q", "q", "no.x", "q"]),
        }
    )
    core.stage(written(batch, None))
    status, shown, _ = published(core, (0, "a", 4))
    assert (status, shown["code"]) == (404, "not-found")
    assert shown["message"].startswith("Row 2 of partition 0: Address 'no.x' does not exist")
    assert core.call("GET", "/producers/p")[0] == 404, "nothing is begun"
    assert core.bodies() == []


def test_rows_go_to_their_addresses_in_their_order(core: SinkCore) -> None:
    count = 3_000
    batch = pa.record_batch(
        {
            "body": pa.array([b"b#%d" % number for number in range(count)]),
            "address": pa.array([f"q{number % 7}" for number in range(count)]),
        }
    )
    core.stage(written(batch, None))
    assert published(core, (0, "a", count))[0] == 200
    for way in range(7):
        assert core.bodies(f"q{way}") == [b"%d" % n for n in range(way, count, 7)]


def test_a_batch_can_be_multicast(core: SinkCore) -> None:
    takers = [Taker(100) for _ in range(2)]
    for taker in takers:
        taker.hold = core.gateway.subscribe(Destination("t"), RoutingType.MULTICAST, taker)
    batch = pa.record_batch({"body": pa.array([b"b#0", b"b#1"])})
    core.stage(written(batch, "t", routing="MULTICAST"))
    assert published(core, (0, "a", 2))[0] == 200
    for taker in takers:
        assert [one.body.rpartition(b"#")[2] for one in taker.got] == numbers(2)


def test_what_an_address_knows_by_its_duplicate_id_is_not_stored_again(core: SinkCore) -> None:
    ids = pa.array(['{"_AMQ_DUPL_ID":"x"}', None, '{"_AMQ_DUPL_ID":"x"}', '{"_AMQ_DUPL_ID":"y"}'])
    core.stage(stream(4, headers=ids))
    assert published(core, (0, "a", 4))[0] == 200
    assert core.bodies() == [b"0", b"1", b"3"]


# ---- producers


def test_producers_are_listed_and_forgotten(core: SinkCore) -> None:
    core.stage(stream(3))
    published(core, (0, "a", 3))
    status, shown, _ = core.call("GET", "/producers")
    assert (status, [one["name"] for one in shown["items"]]) == (200, ["p"])
    gone = core.post("DELETE", "/producers/p")
    core.run(0.2)
    assert gone[0][0] == 204
    assert core.call("DELETE", "/producers/p")[0] == 404
    core.stage(stream(3))
    assert published(core, (0, "a", 3))[0] == 200
    assert core.bodies() == [*numbers(3), *numbers(3)], "what is forgotten is published again"


def test_a_producer_that_is_forgotten_in_the_middle_stops_there(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.BLOCK, max_size_messages=10))
    core.stage(stream(25))
    answers = core.commit((0, "a", 25), waitMs=10_000)
    core.run(0.5)
    gone = core.post("DELETE", "/producers/p")
    core.run(0.5)
    assert gone[0][0] == 204
    assert answers[0][0] == 503
    core.gateway.queues["q"].purge()
    core.run(0.5)
    assert core.bodies() == []
    assert core.call("GET", "/producers/p")[0] == 404


# ---- restarts


def test_every_crash_goes_on_at_its_row(tmp_path: Path) -> None:
    """Of each batch of the journal that a crash may be behind: rows and progress are one unit."""
    core = SinkCore(tmp_path / "whole")
    core.stage(stream(2_500), STAGE)
    core.stage(stream(1_300, first=2_500), "/stages/p/0/1/b")
    assert published(core, (0, "a", 2_500), (1, "b", 1_300))[0] == 200
    batches = [*core.store.batches]
    for kept in range(len(batches) + 1):
        rows = sum(
            len(record[1].bodies if hasattr(record[1], "bodies") else record[1])
            for batch in batches[:kept]
            for what, *record in batch
            if what == "add"
        )
        progress = [
            (record[0].stage, record[0].row)
            for batch in batches[:kept]
            for what, *record in batch
            if what == "define" and type(record[0]).__name__ == "ProgressDefinition"
        ]
        at = progress[-1] if progress else (0, 0)
        assert rows == {0: 0, 1: 2_500, 2: 3_800}[at[0]] + at[1]


def test_a_start_goes_on_with_what_was_begun(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.BLOCK, max_size_messages=10))
    core.stage(stream(25))
    core.commit((0, "a", 25))
    core.run(1.5)
    again = SinkCore(tmp_path, store=core.store)
    again.sink.start()
    again.run(0.5)
    assert again.bodies() == numbers(15, 10)
    assert again.call("GET", "/producers/p")[1]["committed"] == 0
    assert len(again.sink.staging) == 0


def test_a_start_without_a_stage_says_so_and_serves_on(tmp_path: Path) -> None:
    core = SinkCore(tmp_path, limited("q", FullPolicy.BLOCK, max_size_messages=10))
    core.stage(stream(25))
    core.commit((0, "a", 25))
    core.run(1.5)
    for file, _ in core.files.found():
        core.files.remove(file)
    again = SinkCore(tmp_path, store=core.store)
    again.sink.start()
    again.run(0.5)
    status, shown, _ = published(again, (0, "a", 25))
    assert (status, shown["code"]) == (404, "not-found")
    assert "the rest of its batch cannot be published" in shown["message"]
    again.post("DELETE", "/producers/p")
    again.run(0.2)
    again.stage(stream(25))
    assert published(again, (0, "a", 25))[0] == 200


def test_full_pages_that_fail_refuse_a_batch_before_anything_of_it_is_there(
    tmp_path: Path,
) -> None:
    pages = {"page_limit_messages": 40, "page_full_policy": PageFullPolicy.FAIL}
    core = SinkCore(tmp_path, limited("q", FullPolicy.PAGE, max_size_messages=10, **pages))
    core.stage(stream(250))
    status, shown, _ = published(core, (0, "a", 250))
    assert (status, shown["code"]) == (409, "page-full")
    assert "page-limit-messages is 40" in shown["message"]
    core.stage(stream(40), "/stages/p/1/0/a")
    assert published(core, (0, "a", 40), batch=1)[0] == 200
    core.stage(stream(20), "/stages/p/2/0/a")
    status, shown, headers = published(core, (0, "a", 20), batch=2)
    assert (status, shown["code"], headers["Retry-After"]) == (503, "page-full", "5")
    queue = core.gateway.queues["q"]
    assert queue.ready_count + queue.paged_count == 40
    queue.purge()
    core.run(0.2)
    assert published(core, (0, "a", 20), batch=2)[0] == 200


def test_full_pages_are_waited_for_at_their_row(tmp_path: Path) -> None:
    pages = {"page_limit_messages": 2_000, "page_full_policy": PageFullPolicy.FAIL}
    core = SinkCore(tmp_path, limited("q", FullPolicy.PAGE, max_size_messages=10, **pages))
    core.stage(stream(2_000))
    answers = core.commit((0, "a", 2_000))
    core.send("q", *[b"other"] * 600)  # since the batch was judged
    core.run(1.5)
    status, shown, _ = answers[0]
    assert (status, shown["code"]) == (503, "page-full")
    row = core.call("GET", "/producers/p")[1]["messages"]
    assert 1_000 < row < 2_000
    assert shown["message"].startswith(f"Row {row} of a partition, for 'q': ")
    queue = core.gateway.queues["q"]
    assert queue.ready_count + queue.paged_count == row + 600
    queue.purge()
    core.run(0.5)
    assert core.call("GET", "/producers/p")[1]["committed"] == 0


def test_full_pages_that_drop_take_all(tmp_path: Path) -> None:
    pages = {"page_limit_messages": 40, "page_full_policy": PageFullPolicy.DROP}
    core = SinkCore(tmp_path, limited("q", FullPolicy.PAGE, max_size_messages=10, **pages))
    core.stage(stream(250))
    assert published(core, (0, "a", 250))[:2] == (
        200,
        {"done": True, "messages": 250, "total": 250},
    )
    queue = core.gateway.queues["q"]
    there = queue.ready_count + queue.paged_count
    assert there == 50
    assert core.gateway.directory.addresses["q"].dropped == 200, "and they are counted"


def test_a_stage_that_is_cut_after_its_seal_ends_the_batch_there(
    core: SinkCore, tmp_path: Path
) -> None:
    batches = [pa.record_batch({"body": pa.array([b"b#%d" % n for n in some])}) for some in HALVES]
    core.stage(written_all(batches))
    (file,) = (tmp_path / "staged").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * 2 // 3])
    status, shown, _ = published(core, (0, "a", 2_000))
    assert (status, shown["code"]) == (422, "bad-value")
    assert "no Arrow stream that can be read" in shown["message"]
    assert core.bodies() == numbers(1_000), "what could be read is published, and counted"
    assert core.call("GET", "/producers/p")[1]["messages"] == 1_000
    core.stage(stream(3), "/stages/other/0/0/a")
    body = {"batch": 0, "stages": [{"partition": 0, "attempt": "a", "rows": 3}]}
    answers = core.post("POST", "/producers/other:commit", body)
    core.run(0.5)
    assert answers[0][0] == 200, "others go on"
