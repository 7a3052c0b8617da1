"""SASL: the whole table of states and inputs, each mechanism, and hostile peers."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramMechanism

from gateway.model.principal import ANYBODY, By, Principal
from gateway.model.verifier import SCRAM_MECHANISMS as MECHANISMS
from gateway.model.verifier import Verifier
from protocols.amqp import performatives as p
from protocols.amqp.performatives import decode_performative, encode_performative
from protocols.amqp.sasl import (
    BUILT_IN,
    FRAME_BYTES_MAX,
    Challenge,
    External,
    Input,
    SaslServer,
    State,
)
from protocols.amqp.scram import Scram, scram_exchanges
from tests.lanes import examples

SECRET = "correct horse battery"


class Users:
    """An authenticator that keeps its answers until told."""

    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.asked: list[tuple[str, bool]] = []
        self.waiting = []

    @property
    def open(self) -> bool:
        return not self.passwords

    def anybody(self, user):
        return Principal(user)

    def check(self, user, password, done):
        right = self.open or self.passwords.get(user) == password
        self.asked.append((user, right))
        self.waiting.append(lambda: done(Principal(user, by=By.PASSWORD) if right else None))

    def answer(self) -> None:
        self.waiting.pop(0)()


def server(users=None, mechanisms=("PLAIN", "ANONYMOUS"), **more):
    woken = []
    made = SaslServer(users or Users(me=SECRET), mechanisms, lambda: woken.append(1), **more)
    made_frames = sent(made)
    assert made_frames == [p.SaslMechanisms(sasl_server_mechanisms=tuple(mechanisms))]
    return made, woken


def who(sasl) -> str | None:
    """Return the name of whom a login acts for."""
    return None if sasl.principal is None else sasl.principal.user


def sent(sasl) -> list:
    return [decode_performative(raw, 0, len(raw))[0] for raw in sasl.frames_to_send()]


def init(response, mechanism="PLAIN"):
    return p.SaslInit(mechanism=mechanism, initial_response=response)


def plain(user="me", password=SECRET, authzid="") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


# ---- mechanisms


@pytest.mark.parametrize("authzid", ["", "me"])
def test_plain_lets_in_who_knows_the_password(authzid):
    users = Users(me=SECRET)
    sasl, woken = server(users)
    sasl.receive_frame(init(plain(authzid=authzid)))
    assert (sasl.state, sasl.outcome, who(sasl)) == (State.CHECKING, None, None)
    assert sent(sasl) == []
    users.answer()
    assert (sasl.outcome, who(sasl), sasl.mechanism) == (True, "me", "PLAIN")
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_OK)]
    assert woken == [1]


@pytest.mark.parametrize("authzid", ["somebody else", "ME", "me "])
def test_plain_for_somebody_else_is_refused_without_a_check(authzid):
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_frame(init(plain(authzid=authzid)))
    assert (sasl.state, sasl.outcome, who(sasl)) == (State.FAILED, False, None)
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]
    assert "another one" in sasl.reason


def test_plain_with_a_wrong_password():
    users = Users(me=SECRET)
    sasl, woken = server(users)
    sasl.receive_frame(init(plain(password="wrong")))
    users.answer()
    assert (sasl.outcome, who(sasl)) == (False, None)
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]
    assert woken == [1]
    assert sasl.reason


def test_plain_without_initial_response_is_asked_for_it():
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_frame(init(None))
    assert sent(sasl) == [p.SaslChallenge(challenge=b"")]
    sasl.receive_frame(p.SaslResponse(response=plain()))
    users.answer()
    assert sasl.outcome is True


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"me",
        b"\0me",
        b"me\0secret",
        b"\0me\0secret\0",
        b"\0" * 100,
        b"\0\0secret",
        b"\0m\xff\0secret",
        b"\0me\0\xc3\x28",
    ],
)
def test_plain_of_the_wrong_shape_never_reaches_the_authenticator(response):
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_frame(init(response))
    assert users.asked == []
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]
    assert sasl.outcome is False


def test_anonymous():
    sasl, woken = server()
    sasl.receive_frame(init(b"trace@example.com", "ANONYMOUS"))
    assert (sasl.outcome, who(sasl), sasl.mechanism) == (True, None, "ANONYMOUS")
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_OK)]
    assert woken == []


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "plain", "", "SCRAM-SHA-256", "x" * 1000])
def test_a_mechanism_that_was_not_offered(mechanism):
    users = Users(me=SECRET)
    sasl, _ = server(users, ("PLAIN",))
    sasl.receive_frame(init(plain(), mechanism))
    assert users.asked == []
    assert (sasl.outcome, sent(sasl)) == (False, [p.SaslOutcome(code=p.SASL_AUTH)])


@pytest.mark.parametrize(("identity", "passed"), [("cn", True), (None, False)])
def test_external(identity, passed):
    exchanges = {
        **BUILT_IN,
        "EXTERNAL": lambda: External(identity and Principal(identity, by=By.CERTIFICATE)),
    }
    sasl, _ = server(mechanisms=("EXTERNAL",), exchanges=exchanges)
    sasl.receive_frame(init(b"somebody", "EXTERNAL"))
    assert (sasl.outcome, who(sasl)) == (passed, identity)


# ---- the table

ROWS = {
    (State.AWAIT_INIT, Input.INIT): State.CHECKING,
    (State.AWAIT_RESPONSE, Input.RESPONSE): State.CHECKING,
    (State.CHECKING, Input.YES): State.PASSED,
    (State.CHECKING, Input.NO): State.FAILED,
    (State.PASSED, Input.INIT): State.PASSED,
    (State.PASSED, Input.RESPONSE): State.PASSED,
    (State.PASSED, Input.FOREIGN): State.PASSED,
    # The authenticator has answered already, or was not asked.
    (State.AWAIT_INIT, Input.YES): State.AWAIT_INIT,
    (State.AWAIT_INIT, Input.NO): State.AWAIT_INIT,
    (State.AWAIT_RESPONSE, Input.YES): State.AWAIT_RESPONSE,
    (State.AWAIT_RESPONSE, Input.NO): State.AWAIT_RESPONSE,
    (State.PASSED, Input.YES): State.PASSED,
    (State.PASSED, Input.NO): State.PASSED,
}


def in_state(state):
    users = Users(me=SECRET)
    sasl, _ = server(users)
    if state is State.AWAIT_RESPONSE:
        sasl.receive_frame(init(None))
    elif state is State.FAILED:
        sasl.receive_frame(init(b""))
    elif state is not State.AWAIT_INIT:
        sasl.receive_frame(init(plain()))
        if state is State.PASSED:
            users.answer()
    assert sasl.state is state
    sasl.frames_to_send()
    return sasl


FOREIGN = [
    p.SaslMechanisms(sasl_server_mechanisms=("PLAIN",)),
    p.SaslChallenge(challenge=b""),
    p.SaslOutcome(code=0),
    p.Open(container_id="c"),
]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("happened", Input)
def test_every_row_of_the_table(state, happened):
    sasl = in_state(state)
    expected = ROWS.get((state, happened), State.FAILED)
    match happened:
        case Input.INIT:
            sasl.receive_frame(init(plain()))
        case Input.RESPONSE:
            sasl.receive_frame(p.SaslResponse(response=plain()))
        case Input.YES | Input.NO:
            sasl._answered(ANYBODY if happened is Input.YES else None)
        case Input.FOREIGN:
            sasl.receive_frame(FOREIGN[0])
    assert sasl.state is expected
    codes = [frame.code for frame in sent(sasl) if isinstance(frame, p.SaslOutcome)]
    violated = expected is State.FAILED and state is not State.FAILED
    if happened in {Input.YES, Input.NO}:
        wanted = {True: [p.SASL_OK], False: [p.SASL_AUTH]}[happened is Input.YES]
        assert codes == (wanted if state is State.CHECKING else [])
    else:
        assert codes == ([p.SASL_SYS_PERM] if violated else [])


@pytest.mark.parametrize("frame", FOREIGN, ids=lambda f: f.layout.name)
def test_frames_that_only_a_server_sends(frame):
    sasl = in_state(State.AWAIT_INIT)
    sasl.receive_frame(frame)
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_SYS_PERM)]
    assert frame.layout.name in sasl.reason


def test_a_second_init_while_the_first_is_checked_decides_nothing():
    users = Users(me=SECRET)
    sasl, woken = server(users)
    sasl.receive_frame(init(plain()))
    sasl.receive_frame(init(plain()))
    assert sasl.outcome is False
    users.answer()
    assert (sasl.outcome, who(sasl), woken) == (False, None, [])


def test_an_answer_after_the_connection_is_gone():
    users = Users(me=SECRET)
    sasl, woken = server(users)
    sasl.receive_frame(init(plain()))
    sasl.abandon()
    users.answer()
    assert (sasl.outcome, who(sasl), woken, sent(sasl)) == (False, None, [], [])


def test_nothing_after_the_end_changes_it():
    sasl = in_state(State.PASSED)
    sasl.receive_body(b"noise")
    sasl.abandon()
    assert (sasl.outcome, who(sasl), sent(sasl)) == (True, "me", [])


def test_an_answer_given_twice_counts_once():
    sasl, woken = server(Users(me=SECRET))
    sasl.receive_frame(init(plain()))
    sasl._answered(True)
    sasl._answered(False)
    assert (sasl.outcome, woken) == (True, [1])


def test_endless_rounds_end():
    class Endless:
        def step(self, response):
            return Challenge(b"again")

    sasl, _ = server(mechanisms=("X",), exchanges={"X": Endless})
    sasl.receive_frame(init(b"", "X"))
    for _ in range(10):
        sasl.receive_frame(p.SaslResponse(response=b""))
    frames = sent(sasl)
    assert sasl.outcome is False
    assert len(frames) < 8


# ---- bodies of frames


def test_a_frame_of_the_largest_size():
    sasl, _ = server(Users(me=SECRET))
    room = FRAME_BYTES_MAX - len(encode_performative(init(b"x" * 300)))
    body = encode_performative(init(b"x" * (300 + room)))
    assert len(body) == FRAME_BYTES_MAX
    sasl.receive_body(body)
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]


@pytest.mark.parametrize(
    "body",
    [
        encode_performative(init(b"x" * FRAME_BYTES_MAX)),
        b"",
        b"noise",
        b"\x00\x53\x41\x45",
        encode_performative(init(plain())) + b"payload",
        encode_performative(p.Open(container_id="c")),
        b"\x00" * 4000,
    ],
)
def test_bodies_that_are_refused(body):
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_body(body)
    assert users.asked == []
    assert (sasl.outcome, sent(sasl)) == (False, [p.SaslOutcome(code=p.SASL_SYS_PERM)])
    assert sasl.reason


def test_a_body_that_is_taken():
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_body(encode_performative(init(plain())))
    users.answer()
    assert sasl.outcome is True


# ---- the password stays nowhere


def test_no_object_keeps_the_password():
    users = Users(me=SECRET)
    sasl, _ = server(users)
    sasl.receive_body(encode_performative(init(plain())))
    users.waiting.clear()
    gc.collect()
    seen, todo = set(), [sasl]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        assert SECRET not in repr(thing) or thing is users or thing is users.passwords
        if isinstance(thing, (str, bytes)):
            continue
        if thing is not users:
            todo += [r for r in gc.get_referents(thing) if not isinstance(r, type(gc))]


def test_the_repr_of_every_state():
    for state in State:
        assert SECRET not in repr(in_state(state))


# ---- SCRAM

SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


class Verifiers:
    @staticmethod
    def decoy_shape(mechanism, user):
        return 16, 4096

    def __init__(self, name, **passwords):
        self.name = name
        self.known = {}
        self.heard = []
        self.open = True
        for user, password in passwords.items():
            salt, stored, server_key, count = ScramMechanism(name).make_auth_info(
                password, iteration_count=4096, salt=b"0123456789abcdef"
            )
            self.known[user] = Verifier(
                salt=salt, stored_key=stored, server_key=server_key, iterations=count
            )

    def find(self, mechanism, user):
        assert mechanism == self.name
        return self.known.get(user)

    def told(self, user, *, right):
        self.heard.append((user, right))
        return Principal(user, by=By.SCRAM) if right and self.open else None


def scram_server(name, nonce="servernonce", **passwords):
    exchanges = scram_exchanges(Verifiers(name, **passwords), lambda: nonce, b"decoy key")
    return server(mechanisms=(name,), exchanges=exchanges)[0]


def challenge(sasl) -> str:
    (frame,) = sent(sasl)
    assert isinstance(frame, p.SaslChallenge)
    return frame.challenge.decode()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("initial", [True, False])
def test_scram_lets_in_who_knows_the_password(name, initial):
    sasl = scram_server(name, me=SECRET)
    client = ScramClient([name], "me", SECRET)
    first = client.get_client_first().encode()
    sasl.receive_frame(init(first if initial else None, name))
    if not initial:
        assert challenge(sasl) == ""
        sasl.receive_frame(p.SaslResponse(response=first))
    client.set_server_first(challenge(sasl))
    sasl.receive_frame(p.SaslResponse(response=client.get_client_final().encode()))
    (outcome,) = sent(sasl)
    assert outcome.code == p.SASL_OK
    client.set_server_final(outcome.additional_data.decode())
    assert (sasl.outcome, who(sasl), sasl.mechanism) == (True, "me", name)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("me", "wrong"), ("nobody", SECRET)])
def test_scram_turns_others_away_after_the_same_rounds(name, user, password):
    sasl = scram_server(name, me=SECRET)
    client = ScramClient([name], user, password)
    sasl.receive_frame(init(client.get_client_first().encode(), name))
    client.set_server_first(challenge(sasl))
    sasl.receive_frame(p.SaslResponse(response=client.get_client_final().encode()))
    assert (sasl.outcome, who(sasl)) == (False, None)
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]


def test_an_unknown_user_has_a_salt_that_stays():
    firsts = []
    for user in ("nobody", "nobody", "another"):
        sasl = scram_server(MECHANISMS[0], me=SECRET)
        sasl.receive_frame(init(f"n,,n={user},r=clientnonce".encode(), MECHANISMS[0]))
        firsts.append(challenge(sasl))
    assert firsts[0] == firsts[1] != firsts[2]
    known = scram_server(MECHANISMS[0], me=SECRET)
    known.receive_frame(init(b"n,,n=me,r=clientnonce", MECHANISMS[0]))
    parts = [dict(x.split("=", 1) for x in f.split(",")) for f in (firsts[0], challenge(known))]
    assert len(parts[0]["s"]) == len(parts[1]["s"])
    assert parts[0]["i"] == parts[1]["i"]


def test_the_keys_of_a_decoy_let_nobody_in():
    # Even a peer that could compute a proof for the decoy's keys is no user.
    exchange = Scram(MECHANISMS[0], Verifiers(MECHANISMS[0]), nonce="n", decoy_key=b"k")
    exchange._find("nobody")
    assert exchange._known is False


HOSTILE_FIRSTS = [
    b"",
    b"n,,",
    b"n,,n=me",
    b"n,,r=x",
    b"n,,n=me,r=",
    b"n,,m=ext,n=me,r=x",
    b"p=tls-unique,,n=me,r=x",
    b"y,,n=me,r=x,x=y",
    b"z,,n=me,r=x",
    b"n,a=admin,n=me,r=x",
    b"n,,n=m\xff,r=x",
    b"n,,n==2C=3D=,r=x",
    b"n,,n=me,r=\x00",
    b"n,,n=" + b"a" * 3000 + b",r=x",
    b",,,,,,,,",
    b"=,=,=,=",
]


@pytest.mark.parametrize("first", HOSTILE_FIRSTS)
def test_a_hostile_first_message_never_raises(first):
    sasl = scram_server(MECHANISMS[0], me=SECRET)
    sasl.receive_frame(init(first, MECHANISMS[0]))
    sasl.receive_frame(p.SaslResponse(response=b"c=biws,r=xservernonce,p=AAAA"))
    assert sasl.outcome is False


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r=other,p=AAAA",
        b"c=biws,r=clientnonceservernonce,p=!!",
        b"c=biws,r=clientnonceservernonce,p=",
        b"c=eSws,r=clientnonceservernonce,p=AAAA",
        b"c=biws,r=clientnonceservernonce,p=" + b"A" * 3000,
        b"\xff",
    ],
)
def test_a_hostile_final_message_never_raises(final):
    sasl = scram_server(MECHANISMS[0], me=SECRET)
    sasl.receive_frame(init(b"n,,n=me,r=clientnonce", MECHANISMS[0]))
    assert challenge(sasl).startswith("r=clientnonceservernonce,")
    sasl.receive_frame(p.SaslResponse(response=final))
    assert sasl.outcome is False


def test_a_replayed_final_message_is_refused():
    client = ScramClient([MECHANISMS[0]], "me", SECRET)
    first = scram_server(MECHANISMS[0], me=SECRET)
    opening = client.get_client_first().encode()
    first.receive_frame(init(opening, MECHANISMS[0]))
    client.set_server_first(challenge(first))
    final = client.get_client_final().encode()
    again = scram_server(MECHANISMS[0], nonce="another", me=SECRET)
    again.receive_frame(init(opening, MECHANISMS[0]))
    challenge(again)
    again.receive_frame(p.SaslResponse(response=final))
    assert again.outcome is False


@given(st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_scram_noise_never_raises(first, final):
    sasl = scram_server(MECHANISMS[0], me=SECRET)
    sasl.receive_frame(init(b"n,,n=me,r=" + first, MECHANISMS[0]))
    sasl.receive_frame(p.SaslResponse(response=final))
    assert sasl.outcome is False


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=examples(200), deadline=None)
def test_scram_texts_never_raise(first, final):
    sasl = scram_server(MECHANISMS[0], me=SECRET)
    sasl.receive_frame(init(first.encode("utf-8", "replace"), MECHANISMS[0]))
    sasl.receive_frame(p.SaslResponse(response=final.encode("utf-8", "replace")))
    assert sasl.outcome is False


def test_the_example_of_rfc_7677_with_keys_of_our_own():
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", base64.b64decode(SALT), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    keys = Verifiers("SCRAM-SHA-256")
    keys.known["user"] = Verifier(
        salt=base64.b64decode(SALT),
        stored_key=hashlib.sha256(client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", "sha256"),
        iterations=4096,
    )
    exchanges = scram_exchanges(keys, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b"decoy")
    sasl = server(mechanisms=("SCRAM-SHA-256",), exchanges=exchanges)[0]
    sasl.receive_frame(init(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "SCRAM-SHA-256"))
    both = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge(sasl) == f"r={both},s={SALT},i=4096"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    sasl.receive_frame(p.SaslResponse(response=f"c=biws,r={both},p={proof}".encode()))
    (outcome,) = sent(sasl)
    assert outcome.code == p.SASL_OK
    assert outcome.additional_data == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert keys.heard == [("user", True)]


@pytest.mark.parametrize("known", [True, False])
def test_a_proof_is_counted_once_and_no_more_than_a_proof_is(known):
    keys = Verifiers(MECHANISMS[0], **({"me": SECRET} if known else {}))
    exchanges = scram_exchanges(keys, lambda: "servernonce", b"decoy")
    for ending in ("opening", "proof"):
        sasl = server(mechanisms=(MECHANISMS[0],), exchanges=exchanges)[0]
        client = ScramClient([MECHANISMS[0]], "me", "wrong")
        sasl.receive_frame(init(client.get_client_first().encode(), MECHANISMS[0]))
        client.set_server_first(challenge(sasl))
        if ending == "opening":
            sasl.abandon()
            assert keys.heard == []
            continue
        sasl.receive_frame(p.SaslResponse(response=client.get_client_final().encode()))
        assert sasl.outcome is False
        assert keys.heard == [("me", False)]


def test_a_right_proof_of_somebody_who_has_to_wait_is_refused():
    keys = Verifiers(MECHANISMS[0], me=SECRET)
    keys.open = False
    sasl = server(
        mechanisms=(MECHANISMS[0],), exchanges=scram_exchanges(keys, lambda: "n", b"decoy")
    )[0]
    client = ScramClient([MECHANISMS[0]], "me", SECRET)
    sasl.receive_frame(init(client.get_client_first().encode(), MECHANISMS[0]))
    client.set_server_first(challenge(sasl))
    sasl.receive_frame(p.SaslResponse(response=client.get_client_final().encode()))
    assert sent(sasl) == [p.SaslOutcome(code=p.SASL_AUTH)]
    assert keys.heard == [("me", True)]
