"""The paths of streams: what they answer, and how a long read is sent."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from gateway.decoding.view import STORED
from gateway.management.http import Response
from gateway.management.stream_answers import ARROW, CHUNK_BYTES
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from tests.management.streams import BASE, SUBSCRIPTION, StreamsCase
from tests.streams.harness import fill, stomp_message


class ApiTest(StreamsCase):
    # -- operators

    def test_make_show_list_delete(self) -> None:
        made = self.good("POST", BASE, {"name": "all", "address": "orders"})
        assert made == {
            "name": "all", "address": "orders", "epoch": 1, "first": 0, "head": 0, "next": 0,
            "bytes": 0, "lostMessages": 0, "pins": 0, "archived": None, "archiveLags": None,
            "consumers": 0, "skippedMessages": 0,
            "subscriptions": [],
        }  # fmt: skip
        self.fill(5, "all")
        self.attach()
        (shown,) = self.good("GET", BASE)["items"]
        assert shown == self.good("GET", f"{BASE}/all")
        assert (shown["head"], shown["next"]) == (5, 5)
        assert shown["bytes"] > 0
        assert shown["subscriptions"] == [{
            "name": "etl", "floor": 0, "lag": 5, "fence": 1, "role": "",
            "createdMs": self.now.ms, "seenMs": self.now.ms, "selector": "",
        }]  # fmt: skip
        assert self.ask("DELETE", f"{SUBSCRIPTION}/etl") == (204, None)
        assert self.ask("DELETE", f"{SUBSCRIPTION}/etl")[0] == 404
        assert self.ask("DELETE", f"{BASE}/all") == (204, None)
        assert self.ask("GET", f"{BASE}/all")[0] == 404

    def test_names_of_any_kind_are_one_segment(self) -> None:
        for name in ("a/b", "a:attach", "grün", "heads", "read"):
            self.good("POST", BASE, {"name": name, "address": "orders"})
        assert self.good("GET", f"{BASE}/a%2Fb")["name"] == "a/b"
        assert self.good("GET", f"{BASE}/heads")["name"] == "heads"
        assert self.ask("DELETE", f"{BASE}/a%3Aattach")[0] == 204
        self.attach("x%3Aplan%2Fy")
        assert self.registry.find_subscription("x:plan/y") is not None

    def test_what_cannot_be_made(self) -> None:
        self.good("POST", BASE, {"name": "a", "address": "orders"})
        assert self.ask("POST", BASE, {"name": "a", "address": "other"})[0] == 409
        assert self.ask("POST", BASE, {"name": "", "address": "other"})[0] == 422
        assert self.ask("POST", BASE, {"name": "b"})[0] == 422
        status, value = self.ask("POST", BASE, {"name": "b", "adress": "x"})
        assert (status, "did you mean 'address'" in value["message"]) == (422, True)

    # -- attaching

    def test_the_first_attach_makes_address_stream_and_subscription(self) -> None:
        answer = self.attach(startingOffsets="latest")
        assert answer == {
            "subscription": "etl", "address": "orders", "fence": 1, "lifted": [],
            "floor": {"orders": [1, 0]},
            "first": {"orders": [1, 0]}, "heads": {"orders": [1, 0]},
        }  # fmt: skip
        assert ("address", "orders") in self.owner.said
        self.fill(3)
        again = self.attach(startingOffsets="latest")
        assert (again["fence"], again["floor"]) == (2, {"orders": [1, 0]})
        assert again["heads"] == {"orders": [1, 3]}

    def test_an_attach_with_a_place_goes_on_there(self) -> None:
        self.good("POST", BASE, {"name": "all", "address": "orders"})
        self.fill(9, "all")
        made = self.attach(position={"all": [1, 4], "other": [1, 9]})
        assert made["floor"] == {"all": [1, 4]}

    def test_a_bad_start_is_refused(self) -> None:
        body = {"address": "orders", "startingOffsets": "newest"}
        status, value = self.ask("POST", f"{SUBSCRIPTION}/etl:attach", body)
        assert (status, value["code"]) == (422, "bad-value")

    def test_subscription_goes_on_where_one_stands_and_demands_that_there_is_one(self) -> None:
        body = {"address": "orders", "startingOffsets": "subscription"}
        status, value = self.ask("POST", f"{SUBSCRIPTION}/etl:attach", body)
        assert (status, value["code"]) == (404, "not-found")
        assert "There is no subscription 'etl' to go on from" in value["message"]
        first = self.attach()
        self.fill(5)
        self.good(
            "POST",
            f"{SUBSCRIPTION}/etl:commit",
            {"end": {"orders": [1, 3]}, "fence": first["fence"]},
        )
        assert self.attach(startingOffsets="subscription")["floor"] == {"orders": [1, 3]}
        self.good("DELETE", f"{SUBSCRIPTION}/etl")
        made = self.attach(startingOffsets="subscription", position={"orders": [1, 4]})
        assert made["floor"] == {"orders": [1, 4]}, "a checkpoint knows its place"

    def test_a_time_to_start_at_is_looked_up_once(self) -> None:
        self.good("POST", BASE, {"name": "orders", "address": "orders"})
        start = self.now.ms
        for _ in range(3):
            self.fill(2)
            self.registry.flush()
            self.now.ms += 1000
        self.fill(2)
        for since_ms, floor in ((0, 0), (start, 0), (start + 1, 2), (start + 2500, 6)):
            made = self.attach(f"s{since_ms}", startingTimestampMs=since_ms)
            assert made["floor"] == {"orders": [1, floor]}
        late = self.attach("late", startingTimestampMs=start + 3001)
        assert late["floor"] == {"orders": [1, 8]}, "from now on"
        again = self.attach("late", startingTimestampMs=0)
        assert (again["floor"], again["fence"]) == ({"orders": [1, 8]}, 2)
        self.good("DELETE", f"{SUBSCRIPTION}/late")
        made = self.attach("late", startingTimestampMs=0, position={"orders": [1, 5]})
        assert made["floor"] == {"orders": [1, 5]}, "a checkpoint knows its place"

    def test_a_time_that_cannot_be_is_refused(self) -> None:
        self.attach()
        for time in (-1, 1 << 62):
            body = {"address": "orders", "startingTimestampMs": time}
            assert self.ask("POST", f"{SUBSCRIPTION}/x:attach", body)[0] == 422
            assert self.ask("POST", f"{BASE}/orders:find", {"timestampMs": time})[0] == 422

    def test_a_selector_is_fixed_for_the_life_of_a_subscription(self) -> None:
        self.attach(selector="n = 1")
        body = {"address": "orders", "selector": "n = 2"}
        status, value = self.ask("POST", f"{SUBSCRIPTION}/etl:attach", body)
        assert (status, value["code"]) == (409, "in-use")
        assert "has the selector 'n = 1', the query names 'n = 2'" in value["message"]
        status, value = self.ask("POST", f"{SUBSCRIPTION}/etl:attach", {"address": "orders"})
        assert status == 409
        assert "the query names none" in value["message"]
        self.attach("all")
        self.open()
        assert self.attach(selector="n = 1")["fence"] == 2, "it is stored"
        shown = self.good("GET", f"{BASE}/orders")["subscriptions"]
        assert [(one["name"], one["selector"]) for one in shown] == [("all", ""), ("etl", "n = 1")]

    def test_a_selector_that_cannot_be_is_refused_wherever_it_is_named(self) -> None:
        self.attach()
        wrong = {"selector": "n = "}
        attach = {"address": "orders"} | wrong
        assert self.ask("POST", f"{SUBSCRIPTION}/bad:attach", attach)[1]["code"] == "bad-selector"
        assert self.ask("POST", f"{BASE}/heads", attach)[1]["code"] == "bad-selector"
        response = self.read(**wrong)
        assert json.loads(response.body)["code"] == "bad-selector"
        names = [one["name"] for one in self.good("GET", f"{BASE}/orders")["subscriptions"]]
        assert names == ["etl"]

    # -- planning

    def test_a_plan_keeps_its_caps(self) -> None:
        self.attach()
        for _ in range(4):
            self.fill(10, size=1000)
            self.registry.flush()
        start = {"orders": [1, 0]}
        answer = self.plan(start=start)
        assert answer["end"] == answer["heads"] == {"orders": [1, 40]}
        assert answer["first"] == answer["start"] == start
        assert answer["losses"] == []
        assert self.plan(start=start, maxMessages=7)["end"] == {"orders": [1, 7]}
        assert self.plan(start=start, maxBytes=25_000)["end"] == {"orders": [1, 20]}
        assert self.plan(start=start, frozen={"orders": [1, 5]})["end"] == {"orders": [1, 5]}
        assert self.plan(start=start, frozen={"orders": [0, 5]})["end"] == start
        sized = self.plan(start={"orders": [1, 10]}, end={"orders": [1, 30]})
        assert (sized["start"], sized["end"]) == ({"orders": [1, 10]}, {"orders": [1, 30]})
        assert 20_000 < sized["bytes"]["orders"] < 25_000

    def test_nothing_new_waits_and_is_woken(self) -> None:
        self.attach()
        body = {"start": {"orders": [1, 0]}, "waitMs": 1000}
        waiting = self.start("POST", f"{SUBSCRIPTION}/etl:plan", body)
        self.clock.advance(0.9)
        self.assertNoResult(waiting)
        self.fill(1)
        answer = json.loads(self.successResultOf(waiting).body)
        assert answer["end"] == {"orders": [1, 1]}
        assert self.clock.getDelayedCalls() == []
        body["start"] = {"orders": [1, 1]}
        waiting = self.start("POST", f"{SUBSCRIPTION}/etl:plan", body)
        self.clock.advance(1.0)
        assert json.loads(self.successResultOf(waiting).body)["end"] == {"orders": [1, 1]}
        assert self.registry.get("orders").waiters == []

    def test_a_wait_is_bounded_and_ends_with_its_client_and_its_stream(self) -> None:
        self.attach()
        body = {"start": {"orders": [1, 0]}, "waitMs": 3_600_000}
        waiting = self.start("POST", f"{SUBSCRIPTION}/etl:plan", body)
        self.clock.advance(2.0)
        assert self.successResultOf(waiting).status == 200
        waiting = self.start("POST", f"{SUBSCRIPTION}/etl:plan", body)
        waiting.cancel()
        assert self.clock.getDelayedCalls() == []
        waiting = self.start("POST", f"{SUBSCRIPTION}/etl:plan", body)
        self.good("DELETE", f"{BASE}/orders")
        assert self.successResultOf(waiting).status == 404

    def test_losses_are_told_with_reason_and_where_it_goes_on(self) -> None:
        self.open(settings=StreamSettings(retention=Limits(bytes_max=4000)), segment_bytes=500)
        self.attach()
        for _ in range(10):
            self.fill(10, size=100)
            self.registry.flush()
        first = self.registry.get("orders").stream.first_offset
        assert first > 0
        answer = self.plan(start={"orders": [1, 0]})
        (loss,) = answer["losses"]
        assert (loss["reason"], loss["first"], loss["end"]) == ("expired_by_retention", 0, first)
        assert answer["start"] == {"orders": [1, first]}
        assert f"offsets 0 to {first - 1} cannot be read" in loss["text"]
        (loss,) = self.plan(start={"orders": [1, 105]})["losses"]
        assert (loss["reason"], loss["first"]) == ("truncated", 100)
        self.good("DELETE", f"{BASE}/orders")
        self.attach()
        self.fill(3)
        for fields in ({}, {"end": {"orders": [1, 90]}}):
            answer = self.plan(start={"orders": [1, 50]}, **fields)
            assert [loss["reason"] for loss in answer["losses"]] == ["stream_recreated"]
            assert answer["start"] == {"orders": [2, 0]}
        assert answer["end"] == {"orders": [2, 0]}, "a range of a life that is over is empty"

    def test_a_plan_without_a_subscription_is_404(self) -> None:
        assert self.ask("POST", f"{SUBSCRIPTION}/etl:plan", {"start": {}})[0] == 404

    # -- committing

    def test_commit_and_release_lift_the_floor(self) -> None:
        self.attach()
        self.fill(9)
        for action, offset, floor in (("commit", 5, 5), ("release", 8, 8), ("commit", 2, 8)):
            body = {"end": {"orders": [1, offset]}, "fence": 1}
            answer = self.good("POST", f"{SUBSCRIPTION}/etl:{action}", body)
            assert answer == {"floor": {"orders": [1, floor]}}

    def test_commits_that_are_refused(self) -> None:
        self.attach()
        self.attach()
        self.fill(3)
        for body, status in (
            ({"end": {"orders": [1, 1]}, "fence": 1}, 409),
            ({"end": {"orders": [2, 1]}, "fence": 2}, 404),
            ({"end": {"orders": [1, 4]}, "fence": 2}, 422),
            ({"end": {"other": [1, 1]}, "fence": 2}, 422),
            ({"end": {"orders": [1]}, "fence": 2}, 422),
        ):
            assert self.ask("POST", f"{SUBSCRIPTION}/etl:commit", body)[0] == status, body

    # -- heads and reading

    def test_heads_pin_what_is_there(self) -> None:
        self.attach()
        self.fill(4)
        body = {"address": "orders", "pin": "batch-1", "pinMs": 1000}
        (shown,) = self.good("POST", f"{BASE}/heads", body)["items"]
        assert (shown["first"], shown["head"], shown["pins"]) == (0, 4, 1)
        assert self.registry.get("orders").pins == {"batch-1": (0, self.now.ms + 1000)}
        assert len(self.good("POST", f"{BASE}/heads", {})["items"]) == 1
        status, value = self.ask("POST", f"{BASE}/heads", {"address": "nope"})
        assert (status, "POST /api/v1/streams" in value["message"]) == (404, True)

    def read(self, **fields: Any) -> Response:
        span = {"stream": "orders", "epoch": 1, "start": 0, "end": 4}
        body = {"ranges": [span | fields.pop("span", {})], "columns": ["offset", "body"]} | fields
        return self.successResultOf(self.start("POST", f"{BASE}/read", body))

    def test_rows_come_as_an_arrow_stream_in_chunks(self) -> None:
        self.attach()
        self.fill(4, size=CHUNK_BYTES // 2)
        response = self.read(pin="batch-1")
        assert (response.status, response.content_type) == (200, ARROW)
        assert not isinstance(response.body, bytes)
        chunks = list(response.body)
        assert response.length == sum(map(len, chunks))
        assert all(CHUNK_BYTES // 2 < len(chunk) <= CHUNK_BYTES for chunk in chunks[:-1])
        table = pa.ipc.open_stream(b"".join(chunks)).read_all()
        assert table.column("offset").to_pylist() == [0, 1, 2, 3]
        assert "batch-1" in self.registry.get("orders").pins

    def test_a_selector_chooses_rows(self) -> None:
        self.attach()
        fill(self.registry, "orders", [stomp_message(b"", n=str(n % 2)) for n in range(4)])
        response = self.read(selector="n = '1'")
        table = pa.ipc.open_stream(b"".join(response.body)).read_all()
        assert table.column("offset").to_pylist() == [1, 3]

    def test_the_stored_form_has_its_own_columns(self) -> None:
        self.attach()
        self.fill(4)
        response = self.read(form="stored", columns=[])
        assert not isinstance(response.body, bytes)
        reader = pa.ipc.open_stream(b"".join(response.body))
        assert (reader.schema, len(reader.read_all())) == (STORED, 4)
        assert "'stored' has columns of its own" in self.refused(form="stored")
        assert "possible: columns, stored" in self.refused(form="raw")

    def refused(self, **fields: Any) -> str:
        response = self.read(**fields)
        assert response.status == 422
        assert isinstance(response.body, bytes)
        return bytes(response.body).decode()

    def test_what_is_not_there_is_410_or_skipped(self) -> None:
        self.attach()
        self.fill(4)
        for span, reason in (
            ({"end": 5}, "truncated"),
            ({"epoch": 7}, "stream_recreated"),
        ):
            response = self.read(span=span)
            assert response.status == 410
            assert [x["reason"] for x in json.loads(response.body)["losses"]] == [reason]
            response = self.read(span=span, skipLosses=True)
            assert response.status == 200
            table = pa.ipc.open_stream(b"".join(response.body)).read_all()
            assert table.num_rows == (4 if reason == "truncated" else 0)

    def test_reads_that_make_no_sense(self) -> None:
        self.attach()
        for fields, status in (
            ({"columns": ["queue"]}, 422),
            ({"ranges": []}, 422),
            ({"span": {"stream": "nope"}}, 404),
            ({"headers": "xml"}, 422),
        ):
            request = {"columns": ["offset"]} | fields
            assert self.read(**request).status == status, fields

    # -- patterns

    def hold(self, pattern: str = "news.#", **fields: Any) -> Any:
        body = {"addressPattern": pattern, "startingOffsets": "earliest"} | fields
        return self.good("POST", f"{SUBSCRIPTION}/all:attach", body)

    def plan_all(self, start: Any, fence: int, **fields: Any) -> Any:
        body = {"addressPattern": "news.#", "start": start, "fence": fence} | fields
        return self.good("POST", f"{SUBSCRIPTION}/all:plan", body)

    def make(self, *names: str) -> None:
        for name in names:
            self.good("POST", BASE, {"name": name, "address": name})

    def test_a_pattern_reads_all_that_fit_and_those_that_come(self) -> None:
        assert self.hold()["floor"] == {}
        self.make("news.eu", "news.us", "other")
        self.fill(10, "news.eu")
        attached = self.hold()
        assert attached["floor"] == {"news.eu": [1, 0], "news.us": [1, 0]}
        fence = attached["fence"]
        planned = self.plan_all(attached["floor"], fence)
        assert planned["end"] == {"news.eu": [1, 10]}, "the quiet ones are left out"
        self.make("news.asia")
        self.fill(4, "news.asia")
        start = {"news.eu": [1, 10], "news.us": [1, 0]}
        planned = self.plan_all(start, fence)
        assert planned["end"] == {"news.asia": [1, 4]}
        assert self.registry.get("news.asia").subscriptions["all"].fence == fence
        done = self.good(
            "POST", f"{SUBSCRIPTION}/all:commit", {"end": planned["end"], "fence": fence}
        )
        assert done["floor"]["news.asia"] == [1, 4]
        known = self.plan_all({"news.eu": [1, 0]}, fence, end={"news.eu": [1, 10]})
        assert (known["start"], known["end"]) == ({"news.eu": [1, 0]}, {"news.eu": [1, 10]})
        assert known["bytes"]["news.eu"] > 0

    def test_caps_are_shared_and_nobody_is_starved(self) -> None:
        self.make("news.a", "news.b", "news.c")
        for name, count in (("news.a", 900), ("news.b", 90), ("news.c", 1)):
            self.fill(count, name)
        attached = self.hold()
        planned = self.plan_all(attached["floor"], attached["fence"], maxMessages=100)
        ends = {name: end for name, (_, end) in planned["end"].items()}
        assert ends == {"news.a": 90, "news.b": 9, "news.c": 1}

    def test_a_new_stream_may_begin_at_its_end_or_wait_for_the_next_run(self) -> None:
        attached = self.hold()
        self.make("news.a")
        self.fill(5, "news.a")
        planned = self.plan_all({}, attached["fence"], frozen={})
        assert planned["end"] == {}
        planned = self.plan_all({}, attached["fence"], newStreamOffsets="latest")
        assert (planned["start"], planned["end"]) == ({"news.a": [1, 5]}, {"news.a": [1, 5]})

    def test_a_plan_of_a_pattern_waits_for_any_of_its_streams(self) -> None:
        self.make("news.a", "news.b")
        attached = self.hold()
        body = {"addressPattern": "news.#", "start": attached["floor"], "waitMs": 1000}
        body["fence"] = attached["fence"]
        waiting = self.start("POST", f"{SUBSCRIPTION}/all:plan", body)
        self.assertNoResult(waiting)
        self.fill(3, "news.b")
        planned = json.loads(self.successResultOf(waiting).body)
        assert planned["end"] == {"news.b": [1, 3]}
        body["start"] = planned["end"] | {"news.a": [1, 0]}
        waiting = self.start("POST", f"{SUBSCRIPTION}/all:plan", body)
        self.assertNoResult(waiting)
        self.clock.advance(1)
        assert json.loads(self.successResultOf(waiting).body)["end"] == {}

    def test_what_a_pattern_is_refused_for(self) -> None:
        self.make("news.a")
        both = {"address": "x", "addressPattern": "#"}
        for body in ({}, both, {"addressPattern": "a.#.b"}, {"addressPattern": ""}):
            assert self.ask("POST", f"{SUBSCRIPTION}/all:attach", body)[0] == 422
        first = self.hold()
        self.hold()
        late = {"addressPattern": "news.#", "start": {}, "fence": first["fence"]}
        self.make("news.b")
        assert self.ask("POST", f"{SUBSCRIPTION}/all:plan", late)[0] == 409
        other = {"address": "orders", "startingOffsets": "latest"}
        assert self.ask("POST", f"{SUBSCRIPTION}/all:attach", other)[0] == 409

    def test_heads_say_whose_they_are_and_take_a_pattern(self) -> None:
        self.make("news.a", "other")
        found = self.good("POST", f"{BASE}/heads", {"addressPattern": "news.*"})
        assert [one["name"] for one in found["items"]] == ["news.a"]
        assert found["gateway"] == {"name": "", "id": None}

    def test_a_pin_ends_when_its_reader_says_so(self) -> None:
        self.make("news.a")
        pin = {"address": "news.a", "pin": "p", "pinMs": 60_000}
        self.good("POST", f"{BASE}/heads", pin)
        assert self.registry.get("news.a").pins
        self.good("POST", f"{BASE}/heads", pin | {"pinMs": 0})
        self.registry.tick()
        assert not self.registry.get("news.a").pins
