"""The gate: who is let in, what that costs, and that nothing is answered inside the call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.model.principal import By, Principal
from gateway.model.verifier import SCRAM_MECHANISMS, Verifier
from gateway.security import passwords
from gateway.security.gate import EVEN_SECONDS, STRANGERS_MAX, WAITING_MAX, PasswordGate, Why
from gateway.security.passwords import NOBODY, hash_password, hash_problem, verify_password
from gateway.security.secret import Secret
from gateway.security.users import User
from gateway.security.verifiers import make_verifier


class World:
    """Threads that run when told, a clock that is set, and a diary."""

    def __init__(self) -> None:
        self.time = 100.0
        self.soon: list[Callable[[], None]] = []
        self.work: list[tuple[Callable[[], bool], Callable[[bool], None]]] = []
        self.diary: list[tuple[str, str, Why]] = []
        self.delays: list[float] = []

    def now(self) -> float:
        return self.time

    def later(self, action: Callable[[], None]) -> None:
        self.soon.append(action)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.delays.append(seconds)
        self.soon.append(action)

    def verify(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        self.work.append((work, done))

    def refused(self, user: str, peer: str, why: Why) -> None:
        self.diary.append((user, peer, why))

    def run(self) -> int:
        """Run all that waits; returns how many verifications there were."""
        count = len(self.work)
        work, self.work = self.work, []
        for function, done in work:
            done(function())
        soon, self.soon = self.soon, []
        for action in soon:
            action()
        return count


@pytest.fixture(scope="module")
def stored() -> Secret:
    return hash_password("right")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def gate(world: World, stored: Secret) -> PasswordGate:
    return PasswordGate({"ann": User(name="ann", password=stored)}, world, b"k" * 32)


def ask(
    gate: PasswordGate, world: World, user: str, password: str, peer: str = "p"
) -> tuple[bool, int]:
    answers: list[bool] = []
    gate.for_peer(peer).check(user, password, lambda known: answers.append(known is not None))
    assert answers == [], "answered inside the call"
    count = world.run()
    (answer,) = answers
    return answer, count


def test_without_users_anybody_is_let_in_later(world: World) -> None:
    gate = PasswordGate({}, world, b"k")
    assert gate.open
    assert gate.for_peer("p").open
    assert ask(gate, world, "x", "y") == (True, 0)


def test_right_and_wrong(gate: PasswordGate, world: World) -> None:
    assert not gate.open
    assert ask(gate, world, "ann", "right") == (True, 1)
    assert ask(gate, world, "ann", "wrong") == (False, 1)
    assert ask(gate, world, "nobody", "right") == (False, 1)
    assert (gate.accepted, gate.refused, gate.waiting) == (1, 2, 0)
    assert world.diary == [("ann", "p", Why.WRONG), ("nobody", "p", Why.WRONG)]


def test_a_right_login_is_remembered_for_a_minute(gate: PasswordGate, world: World) -> None:
    ask(gate, world, "ann", "right")
    world.time += 59
    assert ask(gate, world, "ann", "right", peer="other") == (True, 0)
    assert ask(gate, world, "ann", "wrong") == (False, 1)
    world.time += 1
    assert ask(gate, world, "ann", "right") == (True, 1)


def test_guessing_is_throttled_and_a_remembered_login_is_not(
    gate: PasswordGate, world: World
) -> None:
    ask(gate, world, "ann", "right")
    for _ in range(5):
        assert ask(gate, world, "ann", "guess") == (False, 1)
    assert ask(gate, world, "ann", "guess") == (False, 0)
    assert world.diary[-1] == ("ann", "p", Why.THROTTLED)
    assert ask(gate, world, "ann", "right") == (True, 0)
    assert ask(gate, world, "ann", "guess", peer="elsewhere") == (False, 1)
    world.time += 12
    assert ask(gate, world, "ann", "guess") == (False, 1)


def test_whoever_is_throttled_can_be_told_for_how_long(gate: PasswordGate, world: World) -> None:
    peer = gate.for_peer("p")
    for _ in range(5):
        assert peer.held("ann") == 0.0
        ask(gate, world, "ann", "guess")
    assert peer.held("ann") == 12.0
    world.time += 11.5
    assert peer.held("ann") == 0.5
    assert [peer.held("bob"), gate.for_peer("q").held("ann"), gate.held("ann")] == [0.0] * 3
    world.time += 0.5
    assert peer.held("ann") == 0.0


def test_while_too_many_checks_wait_the_next_is_worth_trying_in_a_second(
    gate: PasswordGate, world: World
) -> None:
    for n in range(STRANGERS_MAX):
        assert gate.for_peer(str(n)).held("ann") == 0.0
        gate.for_peer(str(n)).check("ann", "x", lambda good: None)
    assert gate.for_peer("p").held("ann") == 1.0
    world.work.clear()


def test_only_so_many_checks_wait(
    gate: PasswordGate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "verify_password", lambda stored, password: True)
    answers: list[bool] = []
    for n in range(STRANGERS_MAX + 3):
        gate.for_peer(str(n)).check("ann", "x", lambda known: answers.append(known is not None))
    assert len(world.work) == STRANGERS_MAX
    assert [why for _, _, why in world.diary] == [Why.BUSY] * 3
    world.run()
    assert sorted(answers) == [False] * 3 + [True] * STRANGERS_MAX
    assert gate.waiting == 0


def test_a_user_who_does_not_exist_costs_the_same(
    gate: PasswordGate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Secret] = []

    def verify(stored: Secret, password: str) -> bool:
        seen.append(stored)
        return True

    monkeypatch.setattr(passwords, "verify_password", verify)
    assert ask(gate, world, "nobody", "x") == (False, 1)
    assert seen == [NOBODY]


def test_an_endless_password_is_cut_and_refused(gate: PasswordGate, world: World) -> None:
    assert ask(gate, world, "ann", "right" * 1000) == (False, 1)


def test_an_acceptor_may_let_in_who_gives_no_user(gate: PasswordGate, world: World) -> None:
    peer = gate.for_peer("p", anonymous=True)
    assert peer.open
    answers: list[bool] = []
    peer.check("", "", lambda known: answers.append(known is not None))
    peer.check("ann", "wrong", lambda known: answers.append(known is not None))
    peer.check("ann", "right", lambda known: answers.append(known is not None))
    assert answers == []
    world.run()
    assert sorted(answers) == [False, True, True]
    assert ask(gate, world, "", "") == (False, 1)


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_name_is_proved_where_there_are_users(
    gate: PasswordGate, world: World, *, anonymous: bool
) -> None:
    peer = gate.for_peer("p", anonymous=anonymous)
    assert peer.proves("ann")
    assert gate.proves("ann")
    assert not peer.proves("")
    gate.use({})
    assert not peer.proves("ann")
    assert not gate.proves("ann")


def test_roles(world: World, stored: Secret) -> None:
    gate = PasswordGate(
        {"a": User(name="a", password=stored, roles=frozenset({"ops"}))}, world, b"k"
    )
    assert gate.roles("a") == {"ops"}
    assert gate.roles("b") == frozenset()


def test_hashes() -> None:
    assert hash_problem(NOBODY) is None
    assert hash_problem(Secret("$argon2id$nonsense")) is not None
    assert not verify_password(NOBODY, "")
    assert not verify_password(Secret("$argon2id$nonsense"), "x")
    assert hash_password("a") != hash_password("a")


# ---- SCRAM

SHA_256 = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return make_verifier(SHA_256, "right")


def test_scram_is_offered_where_every_user_has_a_verifier(
    world: World, stored: Secret, verifier: Verifier
) -> None:
    ann = User(name="ann", password=stored, verifiers={SHA_256: verifier})
    bob = User(name="bob", password=stored)
    both = User(name="both", password=stored, verifiers=dict.fromkeys(SCRAM_MECHANISMS, verifier))

    def offered(*users: User) -> tuple[str, ...]:
        return PasswordGate({u.name: u for u in users}, world, b"k").mechanisms

    assert offered() == offered(bob) == offered(ann, bob) == ()
    assert offered(ann) == offered(ann, both) == (SHA_256,)
    assert offered(both) == SCRAM_MECHANISMS == ("SCRAM-SHA-512", SHA_256)


def test_proofs_are_counted_and_held_back_as_passwords_are(
    world: World, stored: Secret, verifier: Verifier
) -> None:
    ann = User(name="ann", password=stored, verifiers={SHA_256: verifier})
    gate = PasswordGate({"ann": ann}, world, b"k" * 32)
    peer = gate.for_peer("p")
    assert peer.find(SHA_256, "ann") is verifier
    assert peer.find("SCRAM-SHA-512", "ann") is peer.find(SHA_256, "nobody") is None
    like = len(verifier.salt), verifier.iterations
    assert peer.decoy_shape(SHA_256, "nobody") == peer.decoy_shape(SHA_256, "no") == like
    assert peer.told("ann", right=True)
    for _ in range(5):
        assert not peer.told("ann", right=False)
    assert world.diary[-1] == ("ann", "p", Why.WRONG)
    assert peer.find(SHA_256, "ann") is verifier  # its salt must not tell that somebody waits
    assert not peer.told("ann", right=True)
    assert world.diary[-1] == ("ann", "p", Why.THROTTLED)
    assert gate.for_peer("other").told("ann", right=True)
    # Both ways in share one count.
    assert ask(gate, world, "ann", "right") == (False, 0)
    world.time += 12
    assert peer.told("ann", right=True)
    assert (gate.accepted, gate.refused) == (3, 7)


def test_nonces_differ_and_decoys_stay_while_the_users_do(world: World, stored: Secret) -> None:
    users = {"ann": User(name="ann", password=stored)}
    one, again = PasswordGate(users, world, b"k"), PasswordGate(users, world, b"other")
    other = PasswordGate({"bob": User(name="bob", password=hash_password("x"))}, world, b"k")
    nonces = {gate.nonce() for gate in (one, again) for _ in range(50)}
    assert len(nonces) == 100
    assert all(n.isascii() and n.isprintable() and "," not in n for n in nonces)
    assert one.decoy_key == again.decoy_key != other.decoy_key


# ---- other users while it runs


def test_other_users_count_from_the_next_login_on(
    gate: PasswordGate, world: World, stored: Secret
) -> None:
    assert ask(gate, world, "ann", "right") == (True, 1)
    assert ask(gate, world, "ann", "right") == (True, 0)  # remembered
    gate.use({"bob": User(name="bob", password=stored)})
    assert ask(gate, world, "ann", "right") == (False, 1)
    assert ask(gate, world, "bob", "right") == (True, 1)
    assert gate.users.keys() == {"bob"}


def test_an_old_password_is_worth_nothing_though_it_was_remembered(
    gate: PasswordGate, world: World
) -> None:
    assert ask(gate, world, "ann", "right") == (True, 1)
    gate.use({"ann": User(name="ann", password=hash_password("new"))})
    assert ask(gate, world, "ann", "right") == (False, 1)
    assert ask(gate, world, "ann", "new") == (True, 1)


@pytest.mark.parametrize("stays", [True, False])
def test_a_check_that_is_under_way_ends_by_the_new_users(
    gate: PasswordGate, world: World, stored: Secret, stays: bool
) -> None:
    answers: list[bool] = []
    gate.for_peer("p").check("ann", "right", lambda known: answers.append(known is not None))
    gate.use({"ann" if stays else "bob": User(name="x", password=stored)})
    world.run()
    assert answers == [stays]


def test_a_proof_that_was_begun_before_its_user_went_lets_nobody_in(
    gate: PasswordGate, stored: Secret
) -> None:
    assert gate.proved("p", "ann", right=True)
    gate.use({"bob": User(name="bob", password=stored)})
    assert not gate.proved("p", "ann", right=True)


def test_who_is_made_up_looks_alike_until_the_users_change(
    gate: PasswordGate, stored: Secret
) -> None:
    before = gate.decoy_key
    gate.use({"ann": User(name="ann", password=stored)})
    assert gate.decoy_key == before
    gate.use({"ann": User(name="ann", password=hash_password("new"))})
    assert gate.decoy_key != before


def test_who_came_before_has_places_that_strangers_cannot_take(
    gate: PasswordGate, world: World
) -> None:
    assert ask(gate, world, "ann", "right", "home") == (True, 1)
    for n in range(WAITING_MAX):
        gate.for_peer(str(n)).check("bob", "x", lambda _: None)
    assert len(world.work) == STRANGERS_MAX
    world.time += 120  # it is not remembered any more
    answers: list[bool] = []
    gate.for_peer("home").check("ann", "right", lambda known: answers.append(known is not None))
    gate.for_peer("away").check("ann", "right", lambda known: answers.append(known is not None))
    assert len(world.work) == STRANGERS_MAX + 1
    world.run()
    assert sorted(answers) == [False, True]


class Elsewhere:
    """A realm that takes every user who is not ann, and takes its time."""

    def __init__(self, world: World, seconds: float, answer: Principal | Why) -> None:
        self.world, self.seconds, self.answer = world, seconds, answer
        self.recalled: Principal | None = None

    def takes(self, user: str, secret: str) -> bool:
        return user != "ann"

    def remembered(self, user: str, secret: str) -> Principal | None:
        return self.recalled

    def check(self, user: str, secret: str, done: Callable[[Principal | Why], None]) -> None:
        def answered() -> None:
            self.world.time += self.seconds
            done(self.answer)

        self.world.soon.append(answered)


def refused_after(gate: PasswordGate, world: World, user: str, seconds: float) -> float:
    """Return when a wrong login is refused whose check takes so long."""
    began, world.delays = world.time, []
    gate.for_peer(f"10.0.0.{len(world.diary)}").check(user, "wrong", lambda _: None)
    work, world.work = world.work, []
    for function, done in work:
        world.time += seconds
        done(function())
    soon, world.soon = world.soon, []
    for action in soon:
        action()
    work, world.work = world.work, []
    for function, done in work:
        world.time += seconds
        done(function())
    (delay,) = world.delays
    return world.time + delay - began


@pytest.mark.parametrize("seconds", [0.0, 0.003, 0.035, 0.12])
def test_a_refusal_comes_at_the_same_time_whoever_it_is(
    gate: PasswordGate, world: World, seconds: float
) -> None:
    gate.realms = (Elsewhere(world, seconds, Why.WRONG),)
    times = [refused_after(gate, world, user, seconds) for user in ("ann", "bob", "nobody")]
    gate.realms = ()
    times += [refused_after(gate, world, user, seconds) for user in ("ann", "bob", "nobody")]
    assert times == pytest.approx([EVEN_SECONDS] * 6)
    # What takes longer comes at the next step.
    assert refused_after(gate, world, "ann", 0.3) == pytest.approx(2 * EVEN_SECONDS)


def test_a_realm_that_nobody_reached_or_is_busy_counts_for_nothing(
    gate: PasswordGate, world: World
) -> None:
    for why in (Why.UNREACHABLE, Why.BUSY):
        gate.realms = (Elsewhere(world, 0.0, why),)
        for _ in range(20):
            gate.for_peer("p").check("bob", "x", lambda _: None)
            world.run()
            world.run()
    assert gate.for_peer("p").held("bob") == 0.0
    assert {entry[2] for entry in world.diary} == {Why.UNREACHABLE, Why.BUSY}


def test_what_a_realm_remembers_is_let_in_though_others_guessed(
    gate: PasswordGate, world: World
) -> None:
    realm = Elsewhere(world, 0.0, Why.WRONG)
    gate.realms = (realm,)
    for _ in range(6):
        gate.for_peer("p").check("bob", "x", lambda _: None)
        for _ in range(3):
            world.run()
    assert gate.for_peer("p").held("bob") > 0
    realm.recalled = Principal("bob", by=By.DIRECTORY)
    assert ask(gate, world, "bob", "x") == (True, 0)


def test_a_realm_with_passwords_of_its_own_ends_the_offer_of_scram(
    world: World, stored: Secret
) -> None:
    verifiers = {"SCRAM-SHA-256": make_verifier("SCRAM-SHA-256", "right")}
    gate = PasswordGate(
        {"ann": User(name="ann", password=stored, verifiers=verifiers)}, world, b"k" * 32
    )
    assert gate.mechanisms == ("SCRAM-SHA-256",)
    gate.all_in_file = False
    assert gate.mechanisms == ()
