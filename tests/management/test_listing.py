"""Lists of the API in pages: totals, cursors, and the whole list for who asks as before."""

from __future__ import annotations

import pytest

from gateway.management.http import Request
from gateway.management.listing import page
from gateway.model.address import RoutingType
from gateway.model.errors import RefusedError
from tests.management.core import Core

NAMES = [f"q{number:02}" for number in range(7)]


def filled() -> Core:
    core = Core()
    for name in reversed(NAMES):
        core.gateway.directory.make_queue(name, name, RoutingType.ANYCAST)
        body = {"name": f"d-{name}", "address": f"from-{name}", "forwardingAddress": f"to-{name}"}
        status, made = core.ask("POST", "/api/v1/diverts", body)
        assert status == 201, made
    return core


@pytest.mark.parametrize("kind", ["queues", "addresses", "diverts"])
def test_pages_join_to_the_whole_list_with_the_same_total(kind: str) -> None:
    core = filled()
    path = f"/api/v1/{kind}"
    whole = core.ask("GET", path)[1]
    total = len(whole["items"])
    assert (whole["total"], whole["cursor"]) == (total, None)
    joined, cursor = [], ""
    while cursor is not None:
        part = core.ask("GET", f"{path}?limit=3{cursor}")[1]
        assert part["total"] == total
        assert len(part["items"]) <= 3
        joined += part["items"]
        cursor = None if part["cursor"] is None else f"&cursor={part['cursor']}"
    assert joined == whole["items"]


def test_what_comes_and_goes_between_two_pages_shifts_nothing() -> None:
    core = filled()
    first = core.ask("GET", "/api/v1/queues?limit=3")[1]
    core.gateway.directory.make_queue("a-new-one", "a", RoutingType.ANYCAST)
    assert core.ask("DELETE", "/api/v1/queues/q01")[0] == 204
    second = core.ask("GET", f"/api/v1/queues?limit=3&cursor={first['cursor']}")[1]
    assert [one["name"] for one in second["items"]] == NAMES[3:6]
    assert second["total"] == 7


def test_producers_have_a_total_and_a_cursor() -> None:
    core = Core()
    routes = [core.gateway.open_producer(d, None, o) for d, o in producers(5)]
    first = core.ask("GET", "/api/v1/producers?limit=2")[1]
    rest = core.ask("GET", f"/api/v1/producers?limit=9&cursor={first['cursor']}")[1]
    addresses = [one["address"] for one in first["items"] + rest["items"]]
    assert addresses == [f"p{number}" for number in range(len(routes))]
    assert (first["total"], rest["total"], rest["cursor"]) == (5, 5, None)


def producers(count: int):
    from gateway.model.address import Destination
    from tests.broker.core import Owner

    return [(Destination(f"p{number}"), Owner()) for number in range(count)]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "cursor=*", "cursor=W10", "cursor=WyJvZmZzZXQiXQ"]
)
def test_a_limit_or_cursor_that_is_none_is_refused(query: str) -> None:
    status, told = filled().ask("GET", f"/api/v1/queues?{query}")
    assert (status, told["code"]) == (422, "bad-value")


def test_a_cursor_of_another_order_is_refused() -> None:
    request = Request(method="GET", path="/", query={"limit": "1"})
    import json

    answer = page(request, [1, 2], lambda n: (n,), lambda n: {"n": n}, order="size")
    cursor = json.loads(answer.body)["cursor"]
    again = Request(method="GET", path="/", query={"cursor": cursor})
    with pytest.raises(RefusedError, match="in this order"):
        page(again, [1, 2], lambda n: (n,), lambda n: {"n": n}, order="age")
    shown = page(again, [1, 2], lambda n: (n,), lambda n: {"n": n}, order="size")
    assert json.loads(shown.body)["items"] == [{"n": 2}]


def test_a_list_from_the_end_goes_back_to_the_begin() -> None:
    import json

    query, seen = {"limit": "2"}, []
    while True:
        answer = page(
            Request(method="GET", path="/", query=query),
            [3, 1, 5, 2, 4],
            lambda n: (n,),
            lambda n: {"n": n},
            order="-n",
            descending=True,
        )
        part = json.loads(answer.body)
        seen += [one["n"] for one in part["items"]]
        if part["cursor"] is None:
            break
        query = {"limit": "2", "cursor": part["cursor"]}
    assert seen == [5, 4, 3, 2, 1]


def test_messages_have_a_total_and_a_cursor() -> None:
    core = Core()
    core.send("q", *(b"%d" % number for number in range(5)))
    core.sync()
    path = "/api/v1/queues/q/messages"
    first = core.ask("GET", path + "?limit=3")[1]
    assert (first["total"], [one["body"] for one in first["items"]]) == (5, ["0", "1", "2"])
    rest = core.ask("GET", f"{path}?limit=3&cursor={first['cursor']}")[1]
    assert (rest["total"], rest["cursor"]) == (5, None)
    assert [one["body"] for one in rest["items"]] == ["3", "4"]
    both = core.ask("GET", f"{path}?offset=1&cursor={first['cursor']}")
    assert both[0] == 422
