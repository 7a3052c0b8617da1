"""What cannot be is refused by whoever hears of it first, in the same words, and changes nothing.

A file names the line and the key, the API answers 422, AMQP detaches and STOMP answers ERROR, each
with the reason; a selector that does not parse names its column everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.amqp_types import Described, Symbol
from protocols.amqp.performatives import Attach, Detach, Source
from tests.broker.core import Core as BrokerCore
from tests.config.test_load import problems, read
from tests.conformance.clients import Amqp, Stomp
from tests.management.core import Core
from tests.protocols.amqp.peer import condition, of

QUEUES = "/api/v1/queues"


# ---- queues

#: Key in the file, key in the API, value, and the reason.
IMPOSSIBLE = [
    ("ring-size", "ringSize", 0, "a ring of 0 would evict every message at once; give at least 1"),
    ("ring-size", "ringSize", -2, "-2 is below -1; -1 already means no limit"),
    ("max-consumers", "maxConsumers", -2, "-2 is below -1; -1 already means no limit"),
    ("consumers-before-dispatch", "consumersBeforeDispatch", -1, "-1 is out of range; it lies"),
    ("consumers-before-dispatch", "consumersBeforeDispatch", 1 << 31, "is out of range; it lies"),
    ("delay-before-dispatch", "delayBeforeDispatch", -2, "-2 is out of range; it lies between -1"),
    ("delay-before-dispatch", "delayBeforeDispatch", 1 << 31, "is out of range; it lies between"),
    ("filter", "filter", "a = ", "is wrong at column 5: expected a name, a literal or '('"),
]


@pytest.mark.parametrize(("key", "field", "value", "reason"), IMPOSSIBLE)
def test_a_queue_that_cannot_be(tmp_path: Path, key, field, value, reason):
    written = json.dumps(value)
    text = f"[addresses.a]\nqueues = [\n  {{ name = 'q', {key} = {written} }},\n]\n"
    (problem,) = problems(tmp_path, text)
    assert problem.startswith("f.toml:")
    assert f"addresses.a.queues[0].{key}: " in problem
    assert reason in problem
    said = problem.partition(f".{key}: ")[2].rstrip(".")

    core = Core()
    asked = {"name": "q", "address": "a", "routingType": "ANYCAST"}
    status, refused = core.ask("POST", QUEUES, {**asked, field: value})
    assert (status, said in refused["message"]) == (422, True), refused
    assert (core.gateway.queues, core.gateway.addresses) == ({}, {})

    assert core.ask("POST", QUEUES, asked)[0] == 201
    before = core.ask("GET", f"{QUEUES}/q")
    told = len(core.store.told)
    other = {"purgeOnNoConsumers": True, "maxConsumers": 5}
    status, refused = core.ask("PATCH", f"{QUEUES}/q", {**other, field: value})
    assert (status, said in refused["message"]) == (422, True), refused
    assert core.ask("GET", f"{QUEUES}/q") == before
    assert len(core.store.told) == told


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("exclusive", "exclusive", "yes"),
        ("ring-size", "ringSize", "many"),
        ("ring-size", "ringSize", 1.5),
        ("nonsense", "nonsense", 1),
    ],
)
def test_a_value_of_a_wrong_type_or_an_unknown_key_is_named(tmp_path: Path, key, field, value):
    text = f"[addresses.a]\nqueues = [{{ name = 'q', {key} = {json.dumps(value)} }}]\n"
    (problem,) = problems(tmp_path, text)
    assert f"f.toml:2: addresses.a.queues[0].{key}: " in problem
    core = Core()
    status, refused = core.ask("POST", QUEUES, {"name": "q", "address": "a", field: value})
    assert (status, f"'{field}'" in refused["message"]) == (422, True)
    assert (core.gateway.queues, core.gateway.addresses) == ({}, {})


# ---- address-settings


@pytest.mark.parametrize("policy", [p for p in FullPolicy if p is not FullPolicy.PAGE])
@pytest.mark.parametrize("key", ["max-size-bytes", "max-size-messages"])
@pytest.mark.parametrize("split", [False, True])
def test_a_limit_of_0_is_refused_but_for_pages(tmp_path: Path, policy, key, split):
    both = [f"{key} = 0", f"address-full-policy = '{policy.value}'"]
    if split:
        # It holds together for the addresses of the narrower match.
        text = f"[address-settings.'#']\n{both[0]}\n[address-settings.'a.#']\n{both[1]}\n"
    else:
        text = "[address-settings.'a.#']\n" + "\n".join(both) + "\n"
    found = problems(tmp_path, text)
    assert any("f.toml:" in p and "makes the address full for ever" in p for p in found), found
    page = text.replace(policy.value, "PAGE")
    settings = read(tmp_path, page).address_settings.for_address("a.b")
    assert getattr(settings, key.replace("-", "_")) == 0


@pytest.mark.parametrize(
    ("match", "reason"),
    [
        ("a.#.b", "has '#' before its last word"),
        ("#.a", "has '#' before its last word"),
        ("a*.b", "stand for whole words, not for a part of 'a*'"),
        ("", "the match is empty"),
    ],
)
def test_a_match_that_cannot_be(tmp_path: Path, match, reason):
    (problem,) = problems(tmp_path, f"\n[address-settings.'{match}']\nmax-size-messages = 5\n")
    assert problem.startswith("f.toml:2: ")
    assert reason in problem
    core = Core()
    if match:
        status, refused = core.ask("GET", f"{QUEUES}?pattern={match}")
        assert (status, reason in refused["message"]) == (422, True)


@pytest.mark.parametrize("key", ["address-full-policy", "page-full-policy", "disk-full-policy"])
def test_an_unknown_policy_is_named_with_those_there_are(tmp_path: Path, key):
    (problem,) = problems(tmp_path, f"[address-settings.'#']\n{key} = 'SPILL'\n")
    assert problem.startswith(f'f.toml:2: address-settings."#".{key}: "SPILL" is not one of ')
    assert "DROP" in problem


def test_defaults_of_queues_are_judged_as_queues_are(tmp_path: Path):
    for key, value in (("consumers-before-dispatch", 1 << 31), ("delay-before-dispatch", -2)):
        (problem,) = problems(tmp_path, f"[address-settings.'#']\ndefault-{key} = {value}\n")
        assert f"{value} is out of range; it lies between" in problem


# ---- selectors

#: A selector and the column at which it goes wrong.
SELECTORS = [("a =", 4), ("a = = b", 5), ("colour LIKE 5", 13), ("(a = 1", 7), ("a = 'x", 7)]


def wrong_at(column: int) -> str:
    return f"is wrong at column {column}: expected "


@pytest.mark.parametrize(("selector", "column"), SELECTORS)
def test_a_selector_is_refused_with_its_column_by_amqp(selector, column):
    core = BrokerCore()
    name = Symbol("apache.org:selector-filter:string")
    for address in ("new", "t::new"):
        peer = Amqp.at(core)
        came = peer.receiver(
            source=Source(address=address, filter={name: Described(name, selector)})
        )
        assert condition(came) == "detach amqp:invalid-field"
        assert of(came, Attach)[0].source is None
        assert wrong_at(column) in of(came, Detach)[0].error.description
    assert (core.gateway.queues, core.gateway.addresses) == ({}, {})


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("selector", "column"), SELECTORS)
def test_a_selector_is_refused_with_its_column_by_stomp(version, selector, column):
    core = BrokerCore()
    for destination in ("new", "/topic/new"):
        client = Stomp(core, version)
        told = client.refused("SUBSCRIBE", id="s", destination=destination, selector=selector)
        assert told["error-code"] == "bad-selector"
        assert wrong_at(column) in told["body"]
    assert (core.gateway.queues, core.gateway.addresses) == ({}, {})


@pytest.mark.parametrize(("selector", "column"), SELECTORS)
def test_a_selector_is_refused_with_its_column_by_the_api(selector, column):
    core = Core()
    core.send("q", b"x")
    core.sync()
    told = len(core.store.told)
    asked = [
        ("GET", f"{QUEUES}/q/messages?filter={selector}", None),
        ("GET", f"{QUEUES}/q/countMessages?filter={selector}", None),
        ("POST", f"{QUEUES}/q/removeAllMessages", {"filter": selector}),
        ("POST", f"{QUEUES}/q/expireMessages", {"filter": selector}),
        ("POST", f"{QUEUES}/q/retryMessages", {"filter": selector}),
        ("POST", f"{QUEUES}/q/sendMessagesToDeadLetterAddress", {"filter": selector}),
        ("POST", QUEUES, {"name": "n", "address": "q", "filter": selector}),
        ("PATCH", f"{QUEUES}/q", {"filter": selector}),
    ]
    for method, path, body in asked:
        status, refused = core.ask(method, path, body)
        assert (status, refused["code"]) == (422, "bad-selector"), path
        assert wrong_at(column) in refused["message"]
    assert list(core.gateway.queues) == ["q"]
    assert (core.gateway.queues["q"].message_count, len(core.store.told)) == (1, told)
