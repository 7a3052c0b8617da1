"""Who waits, who is woken, what is told, and what programs over HTTP are answered."""

from __future__ import annotations

import json

import pytest

from gateway.management.quotas_api import QuotasApi, check_quota, count_quota
from gateway.management.router import ProblemError, Request, Router
from gateway.model.principal import By, Principal
from gateway.model.quota import Quotas, Scope
from tests.quotas.house import House, table
from tests.quotas.test_senders import sends

ANN = Principal("ann", by=By.PASSWORD)


class Noted:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def note(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))


def test_a_limit_is_told_of_once_and_once_when_there_is_room_again():
    house = House(users=table(messages_in=10))
    house.meters.auditor = noted = Noted()
    peer = house.stomp()
    edges = []
    for _ in range(10):
        peer.say(sends(20))
        house.wait(1.0, peer, step=0.1)
        edges += house.meters.look()
    assert [(one.scope, one.name, one.key, began) for one, began in edges] == [
        (Scope.USER, "ann", 'quotas.users."*".messages-in', True)
    ]
    assert edges[0][0].origin == "gate.toml:7"
    assert "User 'ann' has sent all that it may for now" in edges[0][0].text
    assert noted.events == [
        ("quota.reached", {"limit": 10, "key": 'quotas.users."*".messages-in', "user": "ann"})
    ]
    ends = []
    for _ in range(40):
        house.wait(1.0, peer, step=0.5)
        ends += house.meters.look()
    assert [began for _, began in ends] == [False]
    assert house.meters.counts[Scope.USER, "messages_in"] >= 10
    peer.cut()


def test_the_remote_and_the_address_are_named_for_the_audit():
    house = House(remotes=table(links=1), addresses=table("q", messages_in=1))
    house.meters.auditor = noted = Noted()
    peer = house.stomp()
    peer.subscribe("/queue/a")
    peer.refused("SUBSCRIBE", destination="/queue/b", id="t")
    house.stomp("ben", "10.0.0.2").say(sends(5))
    house.meters.look()
    assert [facts.get("remote") or facts.get("address") for _, facts in noted.events] == [
        "10.0.0.1",
        "q",
    ]


def test_many_who_wait_take_turns_and_none_starves():
    house = House(users=table(messages_in=20))
    peers = [house.stomp() for _ in range(10)]
    for number, peer in enumerate(peers):
        peer.say(sends(100, to=f"/queue/q{number}"))
    house.wait(30.0, *peers, step=0.05)
    counts = [house.count(f"q{number}") for number in range(10)]
    assert sum(counts) <= 20 + 600
    assert sum(counts) >= 600
    assert min(counts[1:]) >= 50
    for peer in peers:
        peer.cut()
    assert house.nothing_held


def test_nobody_waits_and_no_timer_runs():
    house = House(users=table(messages_in=10_000))
    peer = house.stomp()
    peer.say(sends(500))
    assert house.clock.getDelayedCalls() == []
    peer.cut()


def test_there_is_one_timer_for_all_who_wait():
    house = House(users=table(messages_in=1))
    peers = [house.stomp(f"u{number}") for number in range(20)]
    for peer in peers:
        peer.say(sends(5))
    assert len(house.clock.getDelayedCalls()) == 1
    for peer in peers:
        peer.cut()
    assert house.nothing_held


def test_without_quotas_an_end_is_what_is_behind_it():
    house = House()
    peer = house.amqp()
    peer.sender()
    (link,) = peer.engine.sessions[0].links.values()
    assert link.producer.send == link.producer.inner.send
    house.meters.use(Quotas(users=table(messages_in=5)))
    assert link.producer.send != link.producer.inner.send
    house.meters.use(Quotas())
    assert link.producer.send == link.producer.inner.send
    peer.cut()
    assert house.nothing_held


def request(path: str = "/x", **query: str) -> Request:
    return Request(
        method="GET",
        path=path,
        query=query,
        headers={},
        body=b"",
        principal=ANN,
        peer="10.0.0.1",
    )


def test_a_program_is_told_when_to_come_again():
    house = House(users=table(bytes_in=1024), remotes=table(messages_out=10))
    check_quota(house.meters, request(), inward=True)
    count_quota(house.meters, request(), 0, 1024 * 4, inward=True)
    with pytest.raises(ProblemError) as refused:
        check_quota(house.meters, request(), inward=True)
    assert refused.value.status == 429
    assert refused.value.code == "quota-reached"
    assert refused.value.headers["Retry-After"] == "4"
    check_quota(house.meters, request(), inward=False)
    house.clock.advance(3.1)
    check_quota(house.meters, request(), inward=True)
    count_quota(house.meters, request(), 30, 100, inward=False)
    with pytest.raises(ProblemError) as refused:
        check_quota(house.meters, request(), inward=False)
    assert refused.value.headers["Retry-After"] == "3"
    assert house.nothing_held


def test_messages_and_programs_share_one_bucket():
    house = House(users=table(messages_in=10))
    count_quota(house.meters, request(), 8, 100, inward=True)
    peer = house.stomp()
    peer.say(sends(5))
    assert house.count("q") == 2
    peer.cut()


def test_the_api_shows_who_has_used_what_and_refuses_an_unknown_scope():
    house = House(users=table(messages_in=10, burst=2000))
    peer = house.stomp()
    peer.say(sends(30))
    router = Router()
    QuotasApi(house.meters).add_routes(router)
    answer = router.dispatch(request("/api/v1/quotas", scope="user"))
    (item,) = _items(answer)
    assert (item["scope"], item["name"], item["links"]) == ("user", "ann", 0)
    assert item["in"]["messages"] == 20
    assert item["in"]["messagesLeft"] == 0
    assert item["in"]["waiting"] == 1
    assert item["limits"][0] == {
        "limit": "messagesIn",
        "value": 10,
        "key": 'quotas.users."*".messages-in',
        "origin": "gate.toml:7",
    }
    assert router.dispatch(request("/api/v1/quotas", scope="all")).status == 422
    peer.cut()


def _items(answer):
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    return json.loads(body)["items"]
