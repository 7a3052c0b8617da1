"""The tables below `[quotas]`: what they say, for whom, and what of them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.model.quota import Limits, Quotas, network_of
from gateway.quotas.meters import fitting
from tests.config.test_load import problems, read


def quotas(folder: Path, text: str) -> Quotas:
    return read(folder, text).quotas


def values(limits: Limits) -> dict[str, int]:
    return {row: one.value for row, one in limits.items()}


def test_what_holds_for_a_user_comes_from_itself_its_roles_and_each(tmp_path: Path) -> None:
    found = quotas(
        tmp_path,
        """
        [quotas.users."*"]
        messages-in = 10
        links = 5
        [quotas.users.ann]
        messages-in = 20
        bytes-out = "1MiB"
        [quotas.users.root]
        messages-in = -1
        [quotas.roles.batch]
        links = 7
        messages-in = 15
        [quotas.roles.large]
        links = -1
        messages-in = 12
        """,
    )
    assert values(found.for_user("ben", ())) == {"messages_in": 10, "links": 5}
    assert values(found.for_user("ann", ())) == {
        "messages_in": 20,
        "links": 5,
        "bytes_out": 1 << 20,
    }
    assert values(found.for_user("root", ())) == {"links": 5}
    assert values(found.for_user("ben", ["batch"])) == {"messages_in": 15, "links": 7}
    # Of several roles each limit is the most generous one.
    assert values(found.for_user("ben", ["batch", "large"])) == {"messages_in": 15}
    assert values(found.for_user("ann", ["large"]))["messages_in"] == 20
    limit = found.for_user("ben", ())["links"]
    assert limit.key == 'quotas.users."*".links'
    assert limit.origin.endswith(":4")


def test_what_holds_for_a_remote_comes_from_the_smallest_network(tmp_path: Path) -> None:
    found = quotas(
        tmp_path,
        """
        [quotas.remotes."*"]
        connections = 1
        links = 9
        [quotas.remotes."10.0.0.0/8"]
        connections = 2
        [quotas.remotes."10.1.0.0/16"]
        connections = 3
        [quotas.remotes."2001:db8::/48"]
        connections = 4
        [quotas.remotes."2001:db8::7"]
        links = 8
        """,
    )
    for remote, most, links in (
        ("192.0.2.1", 1, 9),
        ("10.2.0.1", 2, 9),
        ("10.1.2.3", 3, 9),
        ("::ffff:10.1.2.3", 3, 9),
        ("2001:db8:0:1::5", 4, 9),
        ("2001:db8::5", 4, 8),  # in the /64 of ::7
        ("local", 1, 9),
    ):
        name = network_of(remote)
        assert values(found.for_remote(name)) == {"connections": most, "links": links}, remote


def test_a_network_of_ipv6_is_one_remote_and_loopback_is_itself() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert network_of("::1") == "::1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("::ffff:1.2.3.4") == "1.2.3.4"


def test_what_holds_for_an_address_is_merged_as_its_settings_are(tmp_path: Path) -> None:
    found = quotas(
        tmp_path,
        """
        [quotas.addresses."#"]
        messages-in = 1
        links = 1
        [quotas.addresses."a.#"]
        messages-in = 2
        [quotas.addresses."a.b"]
        messages-in = 3
        """,
    )
    assert values(found.for_address("x", fitting)) == {"messages_in": 1, "links": 1}
    assert values(found.for_address("a.c", fitting)) == {"messages_in": 2, "links": 1}
    assert values(found.for_address("a.b", fitting)) == {"messages_in": 3, "links": 1}


def test_nothing_written_is_no_quota(tmp_path: Path) -> None:
    assert not quotas(tmp_path, "")
    assert not quotas(tmp_path, "").for_user("ann", ())
    assert not quotas(tmp_path, "[quotas.users.ann]\nburst = 50\n").for_user("ann", ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[quotas.users.a]\nmessages-in = 0\n", "the least is 1, and -1 means no limit"),
        ("[quotas.users.a]\nmessage-in = 5\n", "did you mean messages-in?"),
        ("[quotas.user.a]\nmessages-in = 5\n", "did you mean users?"),
        ('[quotas.remotes."10.0.0.0/99"]\nlinks = 5\n', "is no address and no network"),
        ('[quotas.addresses."a.#.b"]\nlinks = 5\n', "has '#' before its last word"),
        ('[quotas.addresses."a.#"]\nconnections = 5\n', "nobody connects to one"),
        ('[quotas.roles."*"]\nlinks = 5\n', 'what holds for each user is quotas.users."*"'),
        ("[quotas.users.a]\nbytes-in = 10\n", "the least is 1024"),
        ('[quotas.users.a]\nburst = "1ms"\n', "it lies between 10 and 3600000"),
        ("quotas = 5\n", "needs a table"),
    ],
)
def test_what_is_wrong_is_refused_and_named(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert told in problem
