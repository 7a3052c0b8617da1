"""Subscriptions: floors, fences, attach, commit, release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.errors import Code, RefusedError
from gateway.streams import subscription
from gateway.streams.subscription import Place, Subscription

PLACE = Place(epoch=2, first=10, head=50)
KNOWN = Subscription(name="etl", epoch=2, floor=20, fence=3, created_ms=1, seen_ms=1)


def attach(known: Subscription | None = None, **given: Any) -> Subscription:
    options: dict[str, Any] = {"starting": "earliest", "position": None, "now_ms": 9} | given
    return subscription.attach("etl", known, PLACE, **options)


@pytest.mark.parametrize(
    ("starting", "position", "floor"),
    [
        ("earliest", None, 10),
        ("latest", None, 50),
        ("30", None, 30),
        ("3", None, 10),
        ("300", None, 50),
        ("latest", 33, 33),
        ("latest", 3, 10),
        ("earliest", 70, 50),
    ],
)
def test_a_new_one_starts_where_it_is_told(starting: str, position: int | None, floor: int) -> None:
    made = attach(starting=starting, position=position)
    assert made == Subscription(
        name="etl", epoch=2, floor=floor, fence=1, created_ms=9, seen_ms=9
    )  # fmt: skip


@pytest.mark.parametrize("starting", ["earliest", "latest", "49"])
def test_a_known_one_keeps_its_floor_and_gets_a_new_fence(starting: str) -> None:
    made = attach(KNOWN, starting=starting, position=44)
    assert made == replace(KNOWN, fence=4, seen_ms=9)


def test_one_of_a_deleted_stream_starts_anew_and_its_readers_stay_fenced() -> None:
    made = attach(replace(KNOWN, epoch=1), starting="latest")
    assert (made.epoch, made.floor, made.fence) == (2, 50, 4)


@pytest.mark.parametrize("starting", ["", "Latest", "-1", "1.5", "٣", "9" * 30])
def test_an_impossible_start_is_refused_even_for_a_known_one(starting: str) -> None:
    for known in (None, KNOWN):
        with pytest.raises(RefusedError) as caught:
            attach(known, starting=starting)
        assert caught.value.refusal.code is Code.BAD_VALUE


def commit(offset: int, *, epoch: int = 2, fence: int = 3) -> Subscription:
    return subscription.commit(KNOWN, PLACE, epoch=epoch, offset=offset, fence=fence, now_ms=9)


@pytest.mark.parametrize(("offset", "floor"), [(0, 20), (20, 20), (21, 21), (50, 50)])
def test_the_floor_only_rises(offset: int, floor: int) -> None:
    assert commit(offset).floor == floor


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ({"offset": 30, "fence": 2}, Code.IN_USE, "attached again (fence 3)"),
        ({"offset": 30, "epoch": 1}, Code.NOT_FOUND, "life 1"),
        ({"offset": 51}, Code.BAD_VALUE, "the stream ends at 50"),
    ],
)
def test_commits_that_are_refused(given: dict[str, int], code: Code, text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        commit(**given)
    assert caught.value.refusal.code is code
    assert text in caught.value.refusal.text


NUMBER = st.integers(0, (1 << 63) - 1)
ANY = st.builds(
    Subscription, name=st.text(), epoch=NUMBER, floor=NUMBER, fence=NUMBER,
    created_ms=NUMBER, seen_ms=NUMBER,
)  # fmt: skip


@given(st.lists(ANY, unique_by=lambda s: s.name, max_size=4), st.randoms())
def test_the_file_form_comes_back_and_has_one_order(made: list[Subscription], chance: Any) -> None:
    data = subscription.encode(made)
    assert sorted(subscription.decode(data), key=lambda s: s.name) == sorted(
        made, key=lambda s: s.name
    )
    shuffled = list(made)
    chance.shuffle(shuffled)
    assert subscription.encode(shuffled) == data


@pytest.mark.parametrize("data", [b"[]", b'{"version": 2}', b"{", b'{"subscriptions": []}'])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        subscription.decode(data)
