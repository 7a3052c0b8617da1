"""Each change over the API is told of, in one place: by whom, from where, what, how many."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.management.audit import tell_change
from gateway.management.connections_api import ConnectionsApi
from gateway.management.http import SAFE_METHODS, Request, json_response
from gateway.management.router import Change, Router
from gateway.management.streams_api import StreamsApi
from gateway.model.principal import Principal
from gateway.model.roles import Need
from tests.management.core import Core

#: What a reader of a stream does with each batch: looks, and acknowledges.
READER = {"heads", "read", ":find", ":plan", ":commit", ":release"}


def told(core: Core) -> list[Change]:
    changes: list[Change] = []
    core.router.on_change = changes.append
    return changes


def test_every_route_that_changes_something_is_told_of() -> None:
    core = Core()
    ConnectionsApi([], None, lambda: 0).add_routes(core.router)
    StreamsApi(None, None).install(core.router)
    quiet = [
        template.text
        for templates in core.router._by_length.values()
        for template in templates
        for method, route in template.functions.items()
        if method not in SAFE_METHODS and not route.audited
    ]
    assert {text.rpartition("/")[2].replace("{name}", "") for text in quiet} == READER
    unsafe = [route for route in core.router.routes() if route[0] not in SAFE_METHODS]
    assert len(unsafe) > 25


def test_what_was_changed_comes_with_its_answer() -> None:
    core = Core()
    changes = told(core)
    core.ask("POST", "/api/v1/queues", {"name": "q", "address": "a"})
    core.ask("GET", "/api/v1/queues")
    core.ask("POST", "/api/v1/queues/q/removeAllMessages", {})
    core.ask("DELETE", "/api/v1/queues/none")
    core.ask("DELETE", "/api/v1/queues/q")
    assert [(one.request.method, one.template, one.answer.status) for one in changes] == [
        ("POST", "/api/v1/queues", 201),
        ("POST", "/api/v1/queues/{name}/removeAllMessages", 200),
        ("DELETE", "/api/v1/queues/{name}", 404),
        ("DELETE", "/api/v1/queues/{name}", 204),
    ]


def test_a_fault_of_ours_is_told_of_as_well() -> None:
    router = Router()
    changes: list[Change] = []
    router.on_change = changes.append

    def broken(_: Request) -> None:
        raise ZeroDivisionError

    router.add("POST", "/x", broken, need=Need.VIEW)
    with pytest.raises(ZeroDivisionError):
        router.dispatch(Request(method="POST", path="/x"))
    assert [one.answer for one in changes] == [None]


def test_a_line_says_who_from_where_what_and_how_many() -> None:
    structlog.reset_defaults()
    request = Request(
        method="POST",
        path="/",
        principal=Principal("ann"),
        peer="10.0.0.9",
        body=b'{"filter":"a=1"}',
    )
    with capture_logs() as lines:
        for answer in (
            json_response(200, {"messages": 12}),
            json_response(404, {"code": "not-found", "message": "no"}),
        ):
            tell_change(
                Change(
                    request=request,
                    template="/api/v1/queues/{name}/removeAllMessages",
                    parameters={"name": "orders"},
                    answer=answer,
                )
            )
    changed, refused = lines
    assert changed == {
        "event": "api.changed",
        "log_level": "info",
        "user": "ann",
        "peer": "10.0.0.9",
        "method": "POST",
        "route": "/api/v1/queues/{name}/removeAllMessages",
        "of_name": "orders",
        "body": '{"filter":"a=1"}',
        "status": 200,
        "messages": 12,
    }
    assert (refused["event"], refused["code"], refused["status"]) == (
        "api.change_refused",
        "not-found",
        404,
    )
