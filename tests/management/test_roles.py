"""Every route times every role, from the router itself; and what is judged by address."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from gateway.management.allowing import Allowing
from gateway.management.http import SAFE_METHODS, Request, Response
from gateway.management.router import Router
from gateway.management.wire import OPEN_PATHS
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import By, Permission, Principal
from gateway.model.roles import ApiRoles, Need, Role
from tests.management.streams import StreamsCase
from tests.reference.http_api import routes

NEEDS = routes().needs()
STEPS = [None, *Role]


class Notes:
    """An auditor that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def note(self, event: str, **facts: object) -> None:
        self.told.append((event, facts))


def judged(notes: Notes | None = None, *, on: bool = True) -> Router:
    """Return a router with every route of a gateway, each of which does nothing."""
    router = Router()
    for method, template, need in NEEDS:
        router.add(method, template, lambda _, **__: Response(status=204), need=need)
    router.allow = allowing = Allowing(lambda: on)
    if notes is not None:
        allowing.auditor = notes
    return router


def call(router: Router, method: str, template: str, principal: Principal) -> Response:
    path = template
    while "{" in path:
        path = path[: path.index("{")] + "x" + path[path.index("}") + 1 :]
    return router.dispatch(Request(method=method, path=path, principal=principal, peer="10.0.0.1"))


def user(*roles: str) -> Principal:
    return Principal("ann", roles=frozenset(roles), by=By.PASSWORD)


@pytest.mark.parametrize(("method", "template", "need"), NEEDS)
def test_each_route_lets_in_who_has_its_role_or_more(
    method: str, template: str, need: Need
) -> None:
    router = judged()
    for step in STEPS:
        response = call(router, method, template, user(*([step.value] if step else [])))
        if need is Need.OPEN:
            enough = True
        elif need is Need.ADDRESS:
            enough = step is not None
        else:
            order = [None, Role.VIEW, Role.EDIT, Role.MANAGE, Role.ADMIN]
            enough = order.index(step) >= order.index(Role(need.value))
        assert response.status == (204 if enough else 403), (step, need)
        if not enough:
            assert json.loads(response.body)["code"] == "not-authorized"


@pytest.mark.parametrize(("method", "template", "need"), NEEDS)
def test_a_role_that_stands_for_nothing_and_no_login_open_nothing(
    method: str, template: str, need: Need
) -> None:
    others = user("Admin", "administrator", "admin ", "root", "")
    expected = 204 if need in (Need.OPEN, Need.ADDRESS) else 403
    assert call(judged(), method, template, others).status == expected
    expected = 204 if need is Need.OPEN else 403
    assert call(judged(), method, template, Principal(None)).status == expected
    assert call(judged(on=False), method, template, Principal(None)).status == 204


def test_what_only_looks_needs_the_least_and_what_changes_needs_more() -> None:
    assert len(NEEDS) > 60
    # It asks for a login, and renews what that login's own user has: no role is needed for it.
    renewal = "/api/v1/token"
    for method, template, need in NEEDS:
        if method not in SAFE_METHODS and template != renewal:
            assert need not in (Need.OPEN, Need.VIEW), (method, template)
    assert {t for _, t, n in NEEDS if n is Need.OPEN} == OPEN_PATHS | {renewal}
    needs = {(m, t): n for m, t, n in NEEDS}
    assert needs["GET", "/metrics"] is Need.VIEW
    assert needs["GET", "/api/v1/queues/{name}/messages"] is Need.EDIT
    assert needs["POST", "/api/v1/config:reload"] is Need.ADMIN
    assert needs["DELETE", "/api/v1/connections/{id}"] is Need.MANAGE


def test_a_route_without_a_need_cannot_be_added() -> None:
    with pytest.raises(TypeError, match="need"):
        Router().add("GET", "/x", lambda _: Response(status=204))  # type: ignore[call-arg]


def test_a_head_needs_what_its_get_needs() -> None:
    assert call(judged(), "HEAD", "/api/v1/queues", user()).status == 403
    assert call(judged(), "HEAD", "/api/v1/queues", user("view")).status == 204


def test_the_role_is_asked_before_the_body_is_looked_at() -> None:
    request = Request(method="POST", path="/api/v1/queues", body=b"?", principal=user("view"))
    assert judged().dispatch(request).status == 403


def test_a_refusal_says_what_is_needed_and_what_is_there_and_is_noted() -> None:
    notes = Notes()
    response = call(judged(notes), "DELETE", "/api/v1/queues/{name}", user("view", "shop"))
    text = json.loads(response.body)["message"]
    for part in ("DELETE /api/v1/queues/{name}", "'manage'", "'ann'", "shop, view", "[api-roles]"):
        assert part in text
    assert notes.told == [
        (
            "role.refused",
            {
                "user": "ann",
                "peer": "10.0.0.1",
                "method": "DELETE",
                "route": "/api/v1/queues/{name}",
                "need": "manage",
            },
        )
    ]


def test_a_refused_change_is_told_of_as_a_change() -> None:
    router = judged()
    told: list[Any] = []
    router.on_change = told.append
    call(router, "DELETE", "/api/v1/queues/{name}", user("view"))
    assert [one.answer.status for one in told] == [403]


def test_other_names_for_roles() -> None:
    names = {role: frozenset({role.value}) for role in Role}
    roles = ApiRoles(
        {**names, Role.VIEW: frozenset({"monitoring", "ops"}), Role.ADMIN: frozenset()}
    )
    assert roles.highest(["monitoring"]) is Role.VIEW
    assert roles.highest(["ops", "manage"]) is Role.MANAGE
    assert roles.highest(["view"]) is None
    assert roles.highest(["admin"]) is None
    assert roles.administrators() == "(none)"
    for less, more in pairwise(Role):
        assert less.rank < more.rank


class Only:
    """A judge that allows what it lists."""

    def __init__(self, *allowed: tuple[Permission, str]) -> None:
        self.allowed = set(allowed)

    def check(
        self, principal: Principal, permission: Permission, address: str, queue: str | None
    ) -> None:
        if (permission, address) not in self.allowed:
            text = f"{permission.value} at {address}"
            raise RefusedError.of(Code.NOT_AUTHORIZED, text)


class ReadingTest(StreamsCase):
    """Who reads a stream is judged at its address."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("orders", "orders.eu", "secret"):
            self.successResultOf(self.registry.create(name, name))
        self.judge = Only((Permission.CONSUME, "orders"))
        self.principal = Principal("ann", roles=frozenset({"r"}), by=By.PASSWORD, judge=self.judge)

    def start(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        request = Request(
            method=method, path=path, headers=headers, body=data, principal=self.principal
        )
        return self.answered(request)

    def status(self, path: str, body: Any) -> int:
        return self.ask("POST", "/api/v1/streams" + path, body)[0]

    def test_the_address_of_each_stream_is_judged(self) -> None:
        self.fill(3)
        one = {"stream": "orders", "epoch": 1, "start": 0, "end": 1}
        other = {**one, "stream": "secret"}
        assert self.status("/orders:find", {"timestampMs": 0}) == 200
        assert self.status("/secret:find", {"timestampMs": 0}) == 403
        assert self.status("/read", {"ranges": [one, other]}) == 403
        assert self.status("/heads", {"address": "orders"}) == 200
        assert self.status("/heads", {"address": "secret"}) == 403
        # What is not there is not told to who may not have it.
        assert self.status("/heads", {"address": "none"}) == 403
        assert self.status("/subscriptions/s:attach", {"address": "orders"}) == 200
        assert self.status("/subscriptions/t:attach", {"address": "secret"}) == 403
        assert self.status("/subscriptions/s:plan", {"start": {}}) == 200
        fence = {"end": {"orders": [1, 0]}, "fence": 1}
        self.judge.allowed.clear()
        for call, body in (("plan", {"start": {}}), ("commit", fence), ("release", fence)):
            assert self.status(f"/subscriptions/s:{call}", body) == 403
        assert self.status("/read", {"ranges": [one]}) == 403

    def test_a_stream_is_made_for_who_may_make_a_durable_queue(self) -> None:
        self.judge.allowed.add((Permission.CONSUME, "new"))
        assert self.status("/subscriptions/s:attach", {"address": "new"}) == 403
        assert self.registry.find_address("new") is None
        self.judge.allowed.add((Permission.CREATE_DURABLE_QUEUE, "new"))
        assert self.status("/subscriptions/s:attach", {"address": "new"}) == 200

    def test_of_a_pattern_the_rest_is_left_out(self) -> None:
        _, found = self.ask("POST", "/api/v1/streams/heads", {"addressPattern": "#"})
        assert [item["name"] for item in found["items"]] == ["orders"]
        _, found = self.ask("POST", "/api/v1/streams/heads", {})
        assert [item["name"] for item in found["items"]] == ["orders"]
        one = "/subscriptions/s:attach"
        assert self.status(one, {"addressPattern": "secret.#"}) in (200, 403)
        _, found = self.ask("POST", "/api/v1/streams" + one, {"addressPattern": "#"})
        assert list(found["heads"]) == ["orders"]
        plan = {"start": {}, "addressPattern": "#", "fence": found["fence"]}
        assert self.status("/subscriptions/s:plan", plan) == 200
        assert [tap.stream.name for tap in self.registry.subscribed("s")] == ["orders"]
        self.judge.allowed.add((Permission.CONSUME, "orders.eu"))
        assert self.status("/subscriptions/s:plan", plan) == 200
        assert len(self.registry.subscribed("s")) == 2
        # What it reads already is not left out in silence.
        self.judge.allowed.discard((Permission.CONSUME, "orders"))
        assert self.status("/subscriptions/s:plan", plan) == 403

    def test_a_pattern_of_which_nothing_may_be_read_is_refused(self) -> None:
        self.judge.allowed.clear()
        assert self.status("/subscriptions/s:attach", {"addressPattern": "#"}) == 403
