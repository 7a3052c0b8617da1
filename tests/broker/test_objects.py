"""What clients have had made is counted for who had it made, and bounded; nothing drifts."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.model.address import parse_destination
from gateway.model.errors import Code, RefusedError
from gateway.model.objects import NOBODY, Kind, ObjectLimits
from gateway.model.principal import By, Principal
from gateway.model.run import Run
from tests.broker.core import ANYCAST, MULTICAST, Core, Owner, Taker, entry, flags_of, stomp
from tests.lanes import examples

USERS = ["ann", "ben", NOBODY]
ROUTINGS = [None, ANYCAST, MULTICAST]


def limited(*entries, user: int = 3, gateway: int = 100) -> Core:
    core = Core(*entries)
    core.directory.objects.limits = ObjectLimits(
        user=dict.fromkeys(Kind, user), gateway=dict.fromkeys(Kind, gateway)
    )
    return core


def acting(user: str | None) -> Principal | None:
    """Return for whom a user acts who has proved its name; None the gateway itself."""
    return None if user is None else Principal(user, by=By.PASSWORD if user else By.NOTHING)


def producer(core: Core, name: str, user: str | None = "ann", routing=None):
    return core.gateway.open_producer(
        parse_destination(name), routing, Owner(), principal=acting(user)
    )


def subscribe(core: Core, name: str, user: str | None = "ann", **how) -> Taker:
    how.setdefault("routing", MULTICAST)
    return core.consume(name, principal=acting(user), **how)


def held(core: Core, user: str | None = "ann") -> tuple[int, int]:
    objects = core.directory.objects
    return objects.held(Kind.ADDRESSES, user), objects.held(Kind.QUEUES, user)


def there(core: Core) -> tuple[set[str], set[str]]:
    return set(core.gateway.addresses), set(core.gateway.queues)


def refused(act) -> str:
    with pytest.raises(RefusedError) as caught:
        act()
    assert caught.value.refusal.code is Code.TOO_MANY
    return caught.value.refusal.text


WAYS = {
    "send": lambda core, n: producer(core, f"a{n}"),
    "send to a topic": lambda core, n: producer(core, f"a{n}", routing=MULTICAST),
    "send to a queue of its own": lambda core, n: producer(core, f"a{n}::q{n}"),
    "consume": lambda core, n: core.consume(f"a{n}", principal=acting("ann")),
    "consume a queue by name": lambda core, n: core.consume(f"a{n}::q{n}", principal=acting("ann")),
    "browse": lambda core, n: core.consume(f"a{n}", principal=acting("ann"), browse=True),
    "subscribe": lambda core, n: subscribe(core, f"a{n}"),
    "subscribe durably": lambda core, n: subscribe(core, "t", durable_name=f"s{n}"),
    "share": lambda core, n: subscribe(
        core, "t", durable_name=f"s{n}", shared=True, temporary=True
    ),
    "temporary queue": lambda core, n: core.gateway.create_temporary(
        ANYCAST, object(), acting("ann")
    ),
    "temporary topic": lambda core, n: core.gateway.create_temporary(
        MULTICAST, object(), acting("ann")
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_have_something_made_ends_at_the_limit_and_leaves_nothing_behind(way: str):
    core = limited()
    for n in range(3):
        WAYS[way](core, n)
    before = there(core)
    text = refused(lambda: WAYS[way](core, 3))
    assert "User 'ann' has 3 " in text
    assert there(core) == before
    core.check_objects()
    # What exists is served as before, and so is whoever else comes.
    WAYS[way](core, 0) if way.startswith(("send", "consume")) else None
    producer(core, "another", "ben")
    producer(core, "third", NOBODY)
    core.check()


def test_who_may_have_no_queue_gets_no_address_either():
    core = limited()
    for n in range(3):
        subscribe(core, "t", durable_name=f"s{n}")
    before = there(core)
    for way in ("send", "consume", "subscribe", "temporary queue", "consume a queue by name"):
        assert "user-max-queues is 3" in refused(lambda way=way: WAYS[way](core, 9))
    assert there(core) == before
    producer(core, "topic", routing=MULTICAST)  # needs none


def test_a_sender_to_what_exists_is_never_refused():
    core = limited(gateway=3)
    for n in range(3):
        core.send(f"a{n}", b"x")
        producer(core, f"a{n}", "ben")
    for user in ("ann", "ben", "cid"):
        for n in range(3):
            producer(core, f"a{n}", user).send(Run([b"y"], 0))
        assert "All users together have 3" in refused(lambda user=user: producer(core, "b", user))
    core.turn()
    assert core.waiting("a0") != []


def test_a_sender_whose_address_was_deleted_has_it_made_again_while_there_is_room():
    core = limited(user=2)
    first, second = producer(core, "a"), producer(core, "b")
    core.administration.delete_address("a", force=True)
    assert held(core) == (1, 1)
    assert first.send(Run([b"x"], 0)).refusal is None
    assert held(core) == (2, 2)
    core.administration.delete_address("b", force=True)
    producer(core, "c")
    outcome = second.send(Run([b"x"], 0))
    assert outcome.refusal is not None
    assert outcome.refusal.code is Code.TOO_MANY
    core.check_objects()


def test_a_durable_subscription_that_moves_needs_no_more_room_than_it_had():
    core = limited(user=2)
    subscribe(core, "t", durable_name="s").leave()
    subscribe(core, "u", durable_name="r").leave()
    subscribe(core, "u", durable_name="s").leave()
    assert held(core) == (2, 2)
    assert "user-max-queues" in refused(
        lambda: [subscribe(core, "u", "ben", durable_name=f"{n}") for n in range(3)]
    )
    # Another user's would be one more of one's own.
    refused(lambda: subscribe(core, "t", "ben", durable_name="s"))
    core.check_objects()


@pytest.mark.parametrize("user", USERS)
def test_dead_letters_and_expired_messages_are_not_lost_for_a_limit(user: str):
    core = limited(
        entry(
            dead_letter_address="dead",
            expiry_address="late",
            auto_create_dead_letter_resources=True,
            auto_create_expiry_resources=True,
        ),
        user=1,
        gateway=1,
    )
    producer(core, "q", user).send(Run([stomp(b"x")], flags_of()))
    core.turn()
    taker = core.consume("q", principal=acting(user))
    taker.reject()
    core.turn()
    assert core.gateway.figures.lost_dead_letters == 0
    assert core.queue("DLQ.q").message_count == 1
    assert held(core, user) == (1, 1)
    core.check()


def test_what_an_operator_makes_or_declares_counts_for_nobody():
    core = limited(user=1, gateway=1)
    for n in range(5):
        core.directory.make_address(f"a{n}")
        core.administration.create_queue(f"q{n}", f"b{n}", ANYCAST)
    assert held(core, None) == (0, 0)
    producer(core, "q")
    core.directory.keep(core.gateway.addresses["q"])
    core.directory.keep(core.queue("q"))
    assert held(core) == held(core, None) == (0, 0)
    producer(core, "r")
    core.administration.delete_address("q", force=True)
    assert held(core) == held(core, None) == (1, 1)


@pytest.mark.parametrize("user", USERS)
def test_after_a_restart_it_counts_for_who_had_it_made(user: str):
    core = limited(user=3)
    producer(core, "a", user)
    subscribe(core, "t", user, durable_name="s")
    subscribe(core, "t", user)
    core.send("own", b"x")
    core.restart(clean=True)
    assert held(core, user) == (2, 2)
    assert held(core, None) == (3, 3)
    core.check_objects()
    core.directory.drop_queue(core.queue("s"))
    core.administration.delete_address("a", force=True)
    core.administration.delete_address("t", force=True)
    assert held(core, user) == (0, 0)


def test_there_is_room_again_when_the_reaper_has_been():
    core = limited(entry(auto_delete_queues=True, auto_delete_addresses=True), user=2)
    for name in ("a", "b"):
        producer(core, name).close()
        taker = core.consume(name, principal=acting("ann"))
        taker.leave()
    refused(lambda: producer(core, "c"))
    for _ in range(5):
        core.now += 60_000
        core.gateway.expire()
        core.gateway.reaper.sweep()
    assert held(core) == held(core, None) == (0, 0)
    producer(core, "c")
    core.check()


class Made(RuleBasedStateMachine):
    """Clients and an operator make and remove in every way; after each step all is counted anew."""

    def __init__(self) -> None:
        super().__init__()
        self.core = limited(
            entry(auto_delete_queues=True, auto_delete_addresses=True, retroactive_message_count=2),
            user=4,
            gateway=8,
        )
        self.producers = []
        self.takers = []
        self.nodes = []

    names = st.sampled_from(["a", "b", "c", "a::q", "b::r", "c::s"])
    users = st.sampled_from([*USERS, None])
    routings = st.sampled_from(ROUTINGS)

    def attempt(self, act):
        before = there(self.core)
        try:
            return act()
        except RefusedError as error:
            if error.refusal.code is Code.TOO_MANY:
                assert there(self.core) == before, "a refusal left something behind"
            return None

    @rule(name=names, user=users, routing=routings)
    def send(self, name, user, routing):
        made = self.attempt(lambda: producer(self.core, name, user, routing))
        if made is not None:
            self.producers.append(made)
            made.send(Run([b"x"], 4))

    @rule()
    def send_again(self):
        for one in self.producers:
            one.send(Run([b"y"], 4))

    @rule(name=names, user=users, routing=routings, browse=st.booleans())
    def consume(self, name, user, routing, browse):
        taker = self.attempt(
            lambda: self.core.consume(name, principal=acting(user), routing=routing, browse=browse)
        )
        if taker is not None:
            self.takers.append(taker)

    @rule(
        name=st.sampled_from(["a", "b", "t"]),
        user=users,
        durable=st.sampled_from([None, "s1", "s2"]),
        temporary=st.booleans(),
    )
    def subscribe(self, name, user, durable, temporary):
        how = {"durable_name": durable, "shared": True, "temporary": temporary} if durable else {}
        taker = self.attempt(lambda: subscribe(self.core, name, user, **how))
        if taker is not None:
            self.takers.append(taker)

    @rule(user=users, routing=st.sampled_from([ANYCAST, MULTICAST]))
    def temporary(self, user, routing):
        name = self.attempt(
            lambda: self.core.gateway.create_temporary(routing, object(), acting(user))
        )
        if name is not None:
            self.nodes.append(name)

    @rule(at=st.integers(0, 9))
    def leave(self, at):
        if self.takers:
            self.takers.pop(at % len(self.takers)).leave()

    @rule(at=st.integers(0, 9))
    def stop_sending(self, at):
        if self.producers:
            self.producers.pop(at % len(self.producers)).close()

    @rule(at=st.integers(0, 9))
    def delete_temporary(self, at):
        if self.nodes:
            self.core.gateway.delete_temporary(self.nodes.pop(at % len(self.nodes)))

    @rule(name=st.sampled_from(["s1", "s2"]))
    def unsubscribe(self, name):
        self.attempt(lambda: self.core.gateway.delete_subscription(name))

    @rule(at=st.integers(0, 99))
    def delete_queue(self, at):
        names = sorted(self.core.gateway.queues)
        if names:
            name = names[at % len(names)]
            self.attempt(lambda: self.core.administration.delete_queue(name, remove_consumers=True))

    @rule(at=st.integers(0, 99))
    def delete_address(self, at):
        names = sorted(self.core.gateway.addresses)
        if names:
            name = names[at % len(names)]
            self.attempt(lambda: self.core.administration.delete_address(name, force=True))

    @rule(at=st.integers(0, 99))
    def declare(self, at):
        for kind in (self.core.gateway.queues, self.core.gateway.addresses):
            names = sorted(kind)
            if names:
                self.core.directory.keep(kind[names[at % len(names)]])

    @rule(name=st.sampled_from(["a", "o"]))
    def operate(self, name):
        self.attempt(lambda: self.core.administration.create_queue(f"{name}.own", name, ANYCAST))

    @rule()
    def reap(self):
        self.core.now += 60_000
        self.core.gateway.expire()
        self.core.gateway.reaper.sweep()

    @rule(clean=st.booleans())
    def restart(self, clean):
        self.core.restart(clean=clean)
        self.core.directory.objects.limits = limited(user=4, gateway=8).directory.objects.limits
        self.producers, self.takers, self.nodes = [], [], []

    @invariant()
    def is_counted(self):
        self.core.check_objects()
        objects = self.core.directory.objects
        for user in USERS:
            assert all(objects.held(kind, user) <= 4 for kind in Kind)

    def teardown(self):
        for one in self.takers:
            one.leave()
        for name in list(self.core.gateway.addresses):
            if name in self.core.gateway.addresses:
                self.core.administration.delete_address(name, force=True)
        assert held(self.core, None) == (0, 0)
        assert not self.core.directory.objects.users


TestMade = Made.TestCase
TestMade.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None, derandomize=True
)
