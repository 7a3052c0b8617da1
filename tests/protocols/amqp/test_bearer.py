"""OAUTHBEARER and XOAUTH2: what is read of a response, and a refusal told by a challenge."""

from __future__ import annotations

import pytest

from gateway.model.principal import By, Principal
from protocols.amqp import performatives as p
from protocols.amqp.bearer import bearer_exchanges
from protocols.amqp.sasl import TOKEN_FRAME_BYTES_MAX, Challenge, Check, Refused, SaslServer

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln"
GOOD = {
    "OAUTHBEARER": [
        (f"n,a=ann,\x01auth=Bearer {TOKEN}\x01\x01", "ann"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01\x01", ""),
        (f"y,a=a=2Cb=3Dc,\x01host=x\x01port=1\x01auth=bearer {TOKEN}\x01\x01", "a,b=c"),
    ],
    "XOAUTH2": [
        (f"user=ann\x01auth=Bearer {TOKEN}\x01\x01", "ann"),
        (f"auth=Bearer {TOKEN}\x01\x01", ""),
    ],
}
BAD = [
    "",
    "\x01",
    "\x01\x01",
    f"auth=Bearer {TOKEN}",
    f"n,a=ann,\x01auth=Bearer {TOKEN}\x01",
    "n,a=ann,\x01auth=Bearer \x01\x01",
    "n,a=ann,\x01auth=Basic YTpi\x01\x01",
    f"n,a=ann,\x01auth=Bearer {TOKEN}\x01auth=Bearer {TOKEN}\x01\x01",
    f"p=tls-unique,,\x01auth=Bearer {TOKEN}\x01\x01",
    f"n,b=ann,\x01auth=Bearer {TOKEN}\x01\x01",
    f"n\x01auth=Bearer {TOKEN}\x01\x01",
    "n,a=ann,\x01" + "x=y\x01" * 40 + "\x01",
    "n,a=ann,\x01noequals\x01\x01",
]


@pytest.mark.parametrize(
    ("name", "response", "user"), [(n, r, u) for n, good in GOOD.items() for r, u in good]
)
def test_a_response_has_a_user_and_a_token(name: str, response: str, user: str) -> None:
    step = bearer_exchanges()[name]().step(response.encode())
    assert isinstance(step, Check)
    assert (step.user, step.password) == (user, TOKEN)
    assert step.told is not None


@pytest.mark.parametrize("response", BAD)
def test_what_is_none_is_refused_and_not_shown(response: str) -> None:
    for name, make in bearer_exchanges().items():
        if name == "XOAUTH2" and response.startswith(("n,", "p=", "n\x01")):
            continue  # its header is a field there
        for text in (response.encode(), response.encode() + b"\xff"):
            step = make().step(text)
            assert isinstance(step, Refused), name
            assert TOKEN not in step.reason


def test_without_an_initial_response_it_is_asked_for() -> None:
    for make in bearer_exchanges().values():
        assert make().step(None) == Challenge(b"")


class Users:
    """An Authenticator whose answer comes when the test says so."""

    open = False

    def check(self, user, password, done):
        self.asked, self.done = (user, password), done


def negotiate(name: str):
    users, woken = Users(), []
    server = SaslServer(
        users,
        [name],
        lambda: woken.append(True),
        exchanges=bearer_exchanges(),
        frame_max=TOKEN_FRAME_BYTES_MAX,
    )
    server.frames_to_send()
    server.receive_frame(
        p.SaslInit(mechanism=name, initial_response=GOOD[name][0][0].encode(), hostname=None)
    )
    assert users.asked == ("ann", TOKEN)
    return server, users


@pytest.mark.parametrize("name", GOOD)
def test_a_refusal_is_a_challenge_whose_answer_ends_it(name: str) -> None:
    server, users = negotiate(name)
    users.done(None)
    (challenge,) = server.frames_to_send()
    assert b'"status"' in challenge
    assert server.outcome is None
    server.receive_frame(p.SaslResponse(response=b"\x01"))
    assert server.outcome is False
    (outcome,) = server.frames_to_send()
    assert outcome.endswith(bytes([p.SASL_AUTH]))
    assert TOKEN not in repr(server) + server.reason


@pytest.mark.parametrize("name", GOOD)
def test_who_is_let_in_needs_no_more_words(name: str) -> None:
    server, users = negotiate(name)
    users.done(Principal("ann", by=By.TOKEN))
    assert server.outcome is True
    assert server.principal is not None
    assert server.principal.user == "ann"


def test_a_longer_frame_is_refused_all_the_same() -> None:
    server = SaslServer(Users(), ["XOAUTH2"], list, exchanges=bearer_exchanges(), frame_max=9216)
    server.receive_body(b"x" * 9217)
    assert "9217 bytes, the limit is 9216" in server.reason
