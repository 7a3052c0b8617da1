"""Routes, parameters of one segment, methods, and which bodies are let through."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from gateway.management.http import BODY_BYTES_MAX
from gateway.management.router import ProblemError, Request, Router, json_response
from gateway.model.errors import Code, RefusedError
from gateway.model.roles import Need

ROUTES = [
    ("GET", "/livez"),
    ("GET", "/api/v1/queues"),
    ("POST", "/api/v1/queues"),
    ("GET", "/api/v1/queues/{name}"),
    ("PATCH", "/api/v1/queues/{name}"),
    ("POST", "/api/v1/queues/{name}/pause"),
    ("GET", "/api/v1/addresses/{name}/settings"),
    ("POST", "/api/v1/streams/{name}:attach"),
    ("POST", "/api/v1/config:reload"),
    ("GET", "/api/v1/streams/{name}"),
    ("GET", "/api/v1/streams/all"),
    ("GET", "/a/{first}/b/{second}"),
]


def build() -> Router:
    router = Router()
    for method, template in ROUTES:

        def function(request, method=method, template=template, **parameters):
            return json_response(200, {"route": f"{method} {template}", **parameters})

        router.add(method, template, function, need=Need.VIEW)
    return router


def ask(method: str, path: str, **fields) -> tuple[int, dict]:
    response = build().dispatch(Request(method=method, path=path, **fields))
    return response.status, json.loads(response.body)


@pytest.mark.parametrize(
    ("method", "path", "route", "parameters"),
    [
        ("GET", "/livez", "GET /livez", {}),
        ("HEAD", "/livez", "GET /livez", {}),
        ("GET", "/api/v1/queues/a", "GET /api/v1/queues/{name}", {"name": "a"}),
        ("GET", "/api/v1/queues/a%2Fb", "GET /api/v1/queues/{name}", {"name": "a/b"}),
        ("GET", "/api/v1/queues/..", "GET /api/v1/queues/{name}", {"name": ".."}),
        ("GET", "/api/v1/queues/%2e%2e", "GET /api/v1/queues/{name}", {"name": ".."}),
        ("GET", "/api/v1/queues/..%2f..%2fx", "GET /api/v1/queues/{name}", {"name": "../../x"}),
        ("GET", "/api/v1/queues/a%3Fb%23", "GET /api/v1/queues/{name}", {"name": "a?b#"}),
        ("GET", "/api/v1/queues/a+b", "GET /api/v1/queues/{name}", {"name": "a+b"}),
        ("GET", "/api/v1/queues/%252F", "GET /api/v1/queues/{name}", {"name": "%2F"}),
        ("GET", "/api/v1/queues/%F0%9F%90%87", "GET /api/v1/queues/{name}", {"name": "\U0001f407"}),
        ("GET", "/api/v1/queues/a::b", "GET /api/v1/queues/{name}", {"name": "a::b"}),
        ("POST", "/api/v1/queues/q/pause", "POST /api/v1/queues/{name}/pause", {"name": "q"}),
        ("POST", "/api/v1/config:reload", "POST /api/v1/config:reload", {}),
        ("POST", "/api/v1/streams/s:attach", "POST /api/v1/streams/{name}:attach", {"name": "s"}),
        ("GET", "/api/v1/streams/s:attach", "GET /api/v1/streams/{name}", {"name": "s:attach"}),
        (
            "POST",
            "/api/v1/streams/a%3Aattach:attach",
            "POST /api/v1/streams/{name}:attach",
            {"name": "a:attach"},
        ),
        ("GET", "/api/v1/streams/all", "GET /api/v1/streams/all", {}),
        ("GET", "/a/%62/b/c", "GET /a/{first}/b/{second}", {"first": "b", "second": "c"}),
    ],
)
def test_routes(method, path, route, parameters):
    assert ask(method, path) == (200, {"route": route, **parameters})


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/livez/",
        "//livez",
        "/api/v1/queues/",
        "/api/v1/queues//pause",
        "/LIVEZ",
        "/%6civez",
        "/api/v1/queues/a/b",
        "/api/v1/../v1/queues",
        "/api/v1/streams/:attach/",
        "/" * 10_000,
    ],
)
def test_unknown_paths(path):
    status, error = ask("GET", path)
    assert (status, error["code"]) == (404, "not-found")
    assert len(error["message"]) < 200


@pytest.mark.parametrize(
    "path", ["%00", "%", "%2", "%zz", "%ff", "%c0%ae", "%ed%a0%80", "a%0d%0ab", "%7f", "%1b%5b31m"]
)
def test_impossible_segments(path):
    status, error = ask("GET", f"/api/v1/queues/{path}")
    assert (status, error["code"]) == (400, "bad-request")


@given(st.text(min_size=1).filter(lambda s: s.isprintable()))
def test_any_printable_name_survives_quoting(name):
    response = build().dispatch(
        Request(method="GET", path=f"/api/v1/queues/{quote(name, safe='')}")
    )
    assert json.loads(response.body)["name"] == name


@given(st.text(alphabet="/%.:ab0z{}\x7f\u00e4", max_size=40))
def test_no_path_is_a_fault(path):
    assert build().dispatch(Request(method="GET", path="/" + path)).status in (200, 400, 404, 405)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/livez", "GET, HEAD"),
        ("OPTIONS", "/api/v1/queues", "GET, HEAD, POST"),
        ("get", "/api/v1/queues", "GET, HEAD, POST"),
        ("GET", "/api/v1/queues/x/pause", "POST"),
        ("HEAD", "/api/v1/queues/x/pause", "POST"),
        ("PUT", "/api/v1/streams/x:attach", "GET, HEAD, POST"),
        ("TRACE", "/livez", "GET, HEAD"),
    ],
)
def test_other_methods(method, path, allow):
    response = build().dispatch(Request(method=method, path=path))
    assert response.status == 405
    assert response.headers["Allow"] == allow
    assert json.loads(response.body)["code"] == "method-not-allowed"


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON", 'application/json; charset="UTF-8"']
)
def test_json_bodies_pass(kind):
    fields = {"headers": {"content-type": kind}, "body": b"{}"}
    assert ask("POST", "/api/v1/queues", **fields)[0] == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; application/json",
        "application/json; charset=utf-16",
        "application/json; boundary=x",
        "application/jsonx",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json, text/plain",
        "",
    ],
)
@pytest.mark.parametrize("body", [b"{}", b""])
def test_other_bodies_do_not(kind, body):
    fields = {"headers": {"content-type": kind}, "body": body}
    status, error = ask("POST", "/api/v1/queues", **fields)
    assert (status, error["code"]) == (415, "unsupported-media-type")


def test_a_body_must_be_named_but_may_be_missing():
    assert ask("POST", "/api/v1/queues", body=b"{}")[0] == 415
    assert ask("POST", "/api/v1/queues")[0] == 200


def test_a_route_may_take_other_types():
    router = Router()
    router.add(
        "POST", "/x", lambda _: json_response(200, 1), content_types=("text/arrow",), need=Need.VIEW
    )
    for kind, status in (("text/arrow", 200), ("application/json", 415)):
        request = Request(method="POST", path="/x", headers={"content-type": kind}, body=b"x")
        assert router.dispatch(request).status == status


def test_encoded_bodies_are_refused():
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert ask("POST", "/api/v1/queues", headers=headers, body=b"\x1f\x8b")[0] == 415
    assert ask("GET", "/api/v1/queues", headers={"content-encoding": "identity"})[0] == 200


def test_a_get_takes_no_body():
    assert ask("GET", "/livez", body=b"{}")[0] == 400


def test_a_body_over_the_limit_is_refused():
    headers = {"content-type": "application/json"}
    body = b"x" * (BODY_BYTES_MAX + 1)
    assert ask("POST", "/api/v1/queues", headers=headers, body=body)[0] == 413


def test_refusals_are_answers_and_faults_are_raised():
    router = Router()
    errors = {
        "/refused": RefusedError.of(Code.IN_USE, "busy"),
        "/problem": ProblemError(418, "t", "m"),
        "/fault": ZeroDivisionError("x"),
    }

    def function(request):
        raise errors[request.path]

    for path in errors:
        router.add("GET", path, function, need=Need.VIEW)
    assert router.dispatch(Request(method="GET", path="/refused")).status == 409
    assert router.dispatch(Request(method="GET", path="/problem")).status == 418
    with pytest.raises(ZeroDivisionError):
        router.dispatch(Request(method="GET", path="/fault"))


def test_a_deferred_is_handed_on():
    router = Router()
    later = Deferred()
    router.add("GET", "/later", lambda _: later, need=Need.VIEW)
    assert router.dispatch(Request(method="GET", path="/later")) is later


def test_a_route_is_added_once():
    router = build()
    with pytest.raises(ValueError, match="has a function already"):
        router.add("GET", "/livez", lambda _: None, need=Need.VIEW)


def test_the_table_can_be_read():
    assert set(build().routes()) == set(ROUTES)
