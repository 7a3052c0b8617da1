"""Counting what clients have had made and have open: whose it is, and where it ends."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, RefusedError
from gateway.model.objects import NOBODY, Kind, ObjectLimits, Objects, weight_of

LIMITS = ObjectLimits(
    user=dict.fromkeys(Kind, 3),
    gateway=dict.fromkeys(Kind, 5),
    origins={"user-max-queues": "gate.toml:4"},
)


def filled(**users: int) -> Objects:
    objects = Objects(LIMITS)
    for user, count in users.items():
        objects.add(Kind.QUEUES, user, count)
    return objects


def refusal(objects: Objects, user: str, kind: Kind = Kind.QUEUES, count: int = 1) -> str:
    with pytest.raises(RefusedError) as caught:
        objects.check(kind, user, count)
    assert caught.value.refusal.code is Code.TOO_MANY
    assert caught.value.refusal.transient
    return caught.value.refusal.text


def test_the_refusal_says_whose_limit_it_is_its_value_where_it_was_set_and_what_to_do():
    objects = filled(ann=3)
    assert refusal(objects, "ann") == (
        "User 'ann' has 3 queues made on demand, subscriptions among them, and user-max-queues is "
        "3 (gate.toml:4). Delete what is not used, or let auto-delete-queues do it, or raise the "
        "limit."
    )
    objects.add(Kind.LINKS, "ann", 3)
    assert "(by default). Detach some, or raise the limit." in refusal(objects, "ann", Kind.LINKS)


def test_a_user_at_the_limit_is_in_nobodys_way():
    objects = filled(ann=3)
    refusal(objects, "ann")
    objects.check(Kind.QUEUES, "ben")
    objects.check(Kind.ADDRESSES, "ann")


def test_who_proved_no_login_is_one_user_and_the_text_says_so():
    objects = Objects(LIMITS)
    objects.add(Kind.QUEUES, NOBODY, 3)
    text = refusal(objects, NOBODY)
    assert text.startswith("Clients that proved no login count as one user, which has 3 queues")
    objects.check(Kind.QUEUES, "ann")


def test_the_limit_of_the_gateway_is_that_of_all_users():
    objects = filled(ann=3, ben=2)
    text = refusal(objects, "cid")
    assert text.startswith("All users together have 5 queues")
    assert "global-max-queues is 5 (by default)" in text


def test_what_the_gateway_makes_of_itself_counts_for_all_and_is_never_refused():
    objects = Objects(LIMITS)
    for _ in range(9):
        objects.check(Kind.QUEUES, None)
        objects.add(Kind.QUEUES, None)
    assert objects.held(Kind.QUEUES) == 9
    assert not objects.users
    assert "All users together have 9" in refusal(objects, "ann")


@pytest.mark.parametrize(("held", "count", "fits"), [(2, 1, True), (3, 1, False), (1, 3, False)])
def test_as_many_as_the_limit_says_and_no_more(held: int, count: int, fits: bool):
    objects = filled(ann=held)
    if fits:
        objects.check(Kind.QUEUES, "ann", count)
    else:
        refusal(objects, "ann", count=count)


def test_minus_one_is_no_limit_and_0_lets_nobody():
    none = Objects(ObjectLimits(user={Kind.LINKS: -1}, gateway={Kind.LINKS: -1}))
    none.add(Kind.LINKS, "ann", 1_000_000)
    none.check(Kind.LINKS, "ann")
    assert none.has_room(Kind.LINKS, "ann")
    assert not list(none.reached())
    nothing = Objects(ObjectLimits(user={Kind.LINKS: 0}, gateway={}))
    refusal(nothing, "ann", Kind.LINKS)


def test_every_kind_has_a_finite_default_for_a_user_and_for_all():
    limits = Objects().limits
    for kind in Kind:
        assert 0 < limits.user[kind] < limits.gateway[kind]


def test_who_has_nothing_is_forgotten_and_nothing_goes_twice():
    objects = filled(ann=2)
    objects.remove(Kind.QUEUES, "ann")
    assert objects.users == {"ann": {Kind.QUEUES: 1}}
    objects.remove(Kind.QUEUES, "ann")
    assert not objects.users
    assert objects.held(Kind.QUEUES) == 0
    with pytest.raises(AssertionError):
        objects.remove(Kind.QUEUES, None)


def test_a_limit_is_reached_while_it_is_and_when_it_was_in_the_way_since_the_last_look():
    objects = filled(ann=3)
    (reached,) = objects.reached()
    assert (reached.key, reached.user, reached.limit, reached.value) == (
        "user-max-queues",
        "ann",
        3,
        3,
    )
    refusal(objects, "ann")
    assert objects.refused == {"user-max-queues": 1}
    objects.add(Kind.LINKS, "ann", 2)
    refusal(objects, "ann", Kind.LINKS, 2)
    assert [one.key for one in objects.reached()] == ["user-max-queues", "user-max-links"]
    assert [one.key for one in objects.reached()] == ["user-max-queues"]
    objects.remove(Kind.QUEUES, "ann")
    assert not list(objects.reached())


def test_a_user_who_has_gone_meanwhile_is_still_told_of():
    objects = filled(ann=3)
    refusal(objects, "ann")
    objects.remove(Kind.QUEUES, "ann", 3)
    assert [(one.user, one.value) for one in objects.reached()] == [("ann", 0)]
    assert not list(objects.reached())


def test_other_limits_hold_from_then_on_and_nothing_that_exists_goes():
    objects = filled(ann=3)
    objects.limits = ObjectLimits(user={Kind.QUEUES: 1}, gateway={})
    assert "user-max-queues is 1" in refusal(objects, "ann")
    assert objects.held(Kind.QUEUES, "ann") == 3
    objects.limits = ObjectLimits(user={Kind.QUEUES: 4}, gateway={})
    objects.check(Kind.QUEUES, "ann")


@pytest.mark.parametrize(("length", "weight"), [(0, 1), (1023, 1), (1024, 2), (20_000, 20)])
def test_a_long_name_counts_for_what_it_costs(length: int, weight: int):
    assert weight_of("n" * length) == weight
