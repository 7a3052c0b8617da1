"""What a principal needs at the broker: refused before anything is made, and taken away at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.addresses.permissions import PermissionEntry, PermissionTable
from gateway.model.address import RoutingType, parse_destination
from gateway.model.definitions import DivertDefinition
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import By, Permission, Principal
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.security.permits import Denied, Permits
from tests.broker.core import Core, Owner

P = Permission
MULTICAST = RoutingType.MULTICAST
NEVER_REAPED = SettingsEntry(match="#", values={"dead_letter_address": "DLQ"})


def table(**matches: dict[Permission, str]) -> PermissionTable:
    """Return settings; `all` is `#`, and `_` stands for the dot of a name."""
    return PermissionTable(
        [
            PermissionEntry(
                match={"all": "#"}.get(match, match.replace("__", "::").replace("_", ".")),
                roles={one: frozenset(roles.split()) for one, roles in written.items()},
            )
            for match, written in matches.items()
        ]
    )


class World:
    """A core with a judge, and a principal `ann` with the role `in`."""

    def __init__(self, **matches: dict[Permission, str]) -> None:
        self.core = Core(NEVER_REAPED)
        self.denied: list[Denied] = []
        self.permits = Permits(table(**matches), self.denied.append)
        self.ann = Principal("ann", roles=frozenset({"in"}), by=By.PASSWORD, judge=self.permits)

    def use(self, **matches: dict[Permission, str]) -> None:
        self.permits.table = table(**matches)
        self.core.gateway.grants.judge_all()
        self.core.turn()

    def producer(self, name: str, routing: RoutingType | None = None):
        owner = Owner()
        where = parse_destination(name)
        made = self.core.gateway.open_producer(where, routing, owner, principal=self.ann)
        return made, owner

    def consume(self, name: str, **how):
        return self.core.consume(name, principal=self.ann, **how)

    def refused(self, act: Callable[[], object]) -> str:
        """Have something refused; returns the permission that is missing."""
        before = self.there()
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.refusal.code is Code.NOT_AUTHORIZED
        assert self.there() == before
        return self.denied[-1].permission.value

    def there(self) -> tuple[object, ...]:
        gateway = self.core.gateway
        types = {a.name: a.routing_types for a in gateway.addresses.values()}
        return types, set(gateway.queues), gateway.grants.count


def message(text: bytes = b"x") -> Run:
    return Run([pack("q", text, persistent=True)], 1)


ACTS = {
    "send": lambda w: w.producer("new"),
    "send to a topic": lambda w: w.producer("new", MULTICAST),
    "send by queue": lambda w: w.producer("new::q"),
    "consume": lambda w: w.consume("new"),
    "consume by queue": lambda w: w.consume("new::q"),
    "browse": lambda w: w.consume("new", browse=True),
    "subscribe": lambda w: w.consume("new", routing=MULTICAST),
    "subscribe durably": lambda w: w.consume("new", routing=MULTICAST, durable_name="d"),
    "temporary queue": lambda w: w.core.gateway.create_temporary(RoutingType.ANYCAST, w, w.ann),
    "temporary topic": lambda w: w.core.gateway.create_temporary(MULTICAST, w, w.ann),
}
NEEDS = {
    "send": [P.SEND, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "send to a topic": [P.SEND, P.CREATE_ADDRESS],
    "send by queue": [P.SEND, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "consume": [P.CONSUME, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "consume by queue": [P.CONSUME, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "browse": [P.BROWSE, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "subscribe": [P.CONSUME, P.CREATE_NON_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "subscribe durably": [P.CONSUME, P.CREATE_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "temporary queue": [P.CREATE_NON_DURABLE_QUEUE, P.CREATE_ADDRESS],
    "temporary topic": [P.CREATE_NON_DURABLE_QUEUE, P.CREATE_ADDRESS],
}


@pytest.mark.parametrize("act", ACTS)
def test_each_missing_permission_is_named_and_nothing_is_half_made(act: str) -> None:
    needs = NEEDS[act]
    for missing in needs:
        world = World(all={one: "in" for one in Permission if one is not missing})
        assert world.refused(lambda w=world: ACTS[act](w)) == missing.value
    ACTS[act](World(all=dict.fromkeys(needs, "in")))


def test_another_routing_type_of_an_address_is_made_too() -> None:
    world = World(all={P.SEND: "in", P.CONSUME: "in", P.CREATE_NON_DURABLE_QUEUE: "in"})
    world.core.producer("a")
    assert world.refused(lambda: world.producer("a", MULTICAST)) == "create-address"
    assert world.refused(lambda: world.consume("a", routing=MULTICAST)) == "create-address"
    world.producer("a")


def test_one_queue_of_an_address_has_settings_of_its_own() -> None:
    world = World(
        topic={P.CONSUME: "others", P.SEND: "in"}, topic__mine={P.CONSUME: "in", P.BROWSE: "in"}
    )
    for name in ("mine", "other"):
        world.core.consume("topic", routing=MULTICAST, durable_name=name).leave()
    world.consume("topic::mine").leave()
    world.consume("topic", routing=MULTICAST, durable_name="mine").leave()
    assert world.refused(lambda: world.consume("topic::other")) == "consume"
    # What the narrower one leaves out is denied, whatever the address says.
    assert world.refused(lambda: world.producer("topic::mine")) == "send"
    world.producer("topic::other")


def test_a_wildcard_address_gives_nothing_that_its_reader_could_not_have() -> None:
    written = {
        "news_#": {P.CONSUME: "in", P.CREATE_NON_DURABLE_QUEUE: "in", P.CREATE_ADDRESS: "in"},
        "news_secret": {P.CONSUME: "boss"},
    }
    world = World(**written)
    assert world.refused(lambda: world.consume("news.#", routing=MULTICAST)) == "consume"
    assert world.denied[-1].entry.match == "news.secret"
    world.ann.roles |= {"boss"}
    world.consume("news.#", routing=MULTICAST)


def test_to_delete_a_subscription_or_to_change_what_it_takes() -> None:
    may = {P.CONSUME: "in", P.CREATE_DURABLE_QUEUE: "in"}
    world = World(all=may)
    how = {"routing": MULTICAST, "durable_name": "d"}
    world.core.consume("t", **how).leave()
    world.core.producer("u", MULTICAST)
    gateway = world.core.gateway

    def delete() -> None:
        gateway.delete_subscription("d", world.ann)

    assert world.refused(delete) == "delete-durable-queue"
    other = {"selector": "a = 1", **how}
    assert world.refused(lambda: world.consume("t", **other)) == "delete-durable-queue"
    assert world.refused(lambda: world.consume("u", **how)) == "delete-durable-queue"
    world.consume("t", **how).leave()
    world.use(all={**may, P.DELETE_DURABLE_QUEUE: "in"})
    world.consume("t", **other).leave()
    world.consume("u", **how).leave()
    delete()
    assert "d" not in gateway.queues


def test_the_gateway_goes_where_its_principal_may_not() -> None:
    world = World(a={P.SEND: "in", P.CONSUME: "in"})
    world.core.producer("a")
    world.core.gateway.branches.create(DivertDefinition(name="d", address="a", forwarding=("b",)))
    route, _ = world.producer("a")
    assert route.send(message()).refusal is None
    assert world.core.gateway.queues["b"].ready_count == 1
    taker = world.consume("a")
    taker.take(1)
    world.core.turn()
    taker.reject()
    assert world.core.gateway.queues["DLQ"].ready_count == 1


# ---- taken away


def test_a_route_that_is_denied_takes_nothing_more_and_its_owner_is_told() -> None:
    world = World(a={P.SEND: "in"}, b={P.SEND: "in"})
    for name in "ab":
        world.core.producer(name)
    (route, owner), (other, _) = world.producer("a"), world.producer("b")
    assert route.send(message()).refusal is None
    world.use(a={P.SEND: "others"}, b={P.SEND: "in"})
    refusal = route.send(message()).refusal
    assert refusal is not None
    assert (refusal.code, owner.told) == (Code.NOT_AUTHORIZED, ["not-authorized"])
    assert route.send_mixed(message()).refusal == refusal
    assert other.send(message()).refusal is None
    assert world.core.gateway.queues["a"].ready_count == 1
    assert world.core.gateway.grants.count == 1
    world.use(a={P.SEND: "in"}, b={P.SEND: "in"})
    assert route.send(message()).refusal is not None  # what was taken away stays so
    assert world.producer("a")[0].send(message()).refusal is None


def test_a_transaction_commits_nothing_that_is_denied_by_then() -> None:
    world = World(a={P.SEND: "in"})
    world.core.producer("a")
    route, _ = world.producer("a")
    work = world.core.gateway.begin()
    assert work.send(route, message()) is None
    world.ann.renew(frozenset(), None)
    world.core.turn()
    with pytest.raises(RefusedError) as caught:
        work.commit()
    assert caught.value.refusal.code is Code.NOT_AUTHORIZED
    work.rollback()
    assert world.core.gateway.queues["a"].ready_count == 0


@pytest.mark.parametrize("browse", [False, True])
def test_a_consumer_that_is_denied_is_removed(browse: bool) -> None:
    world = World(a={P.CONSUME: "in", P.BROWSE: "in"})
    world.core.send("a", b"x")
    taker = world.consume("a", browse=browse)
    taker.take(1)
    world.core.turn()
    world.ann.renew(frozenset({"other"}), None)
    assert taker.refusals == []
    world.core.turn()
    assert [refusal.code for refusal in taker.refusals] == [Code.NOT_AUTHORIZED]
    queue = world.core.gateway.queues["a"]
    assert (queue.consumer_count, queue.ready_count, world.core.gateway.grants.count) == (0, 1, 0)


def test_what_ends_by_itself_is_not_held_any_more() -> None:
    world = World(all=dict.fromkeys(Permission, "in"))
    route, _ = world.producer("a")
    takers = [world.consume("a"), world.consume("a", browse=True), world.consume("t::q")]
    assert world.core.gateway.grants.count == 4
    route.close()
    for taker in takers:
        taker.leave()
    assert world.core.gateway.grants.count == 0
    assert world.ann.changed == []


def test_an_address_that_is_made_again_is_judged_again() -> None:
    world = World(all={P.SEND: "in", P.CREATE_ADDRESS: "in", P.CREATE_DURABLE_QUEUE: "in"})
    route, _ = world.producer("a")
    world.core.administration.delete_address("a", force=True)
    world.permits.table = table(all={P.SEND: "in"})
    refusal = route.send(message()).refusal
    assert refusal is not None
    assert refusal.code is Code.NOT_AUTHORIZED
    assert "a" not in world.core.gateway.addresses
