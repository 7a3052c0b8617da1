"""What a change of each key reaches: every key is in the table, and comparing finds all of them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gateway.config import schema
from gateway.config.check import HostFacts, build
from gateway.config.diff import Change, changes, gone_diverts, in_force
from gateway.config.reach import REACH, Reach, reach_of
from gateway.config.sources import Layers
from gateway.config.tree import Acceptor, Config

HOST = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")
TABLES = {
    "": schema.TOP,
    "acceptors": schema.ACCEPTOR,
    "address-settings": schema.ADDRESS_SETTINGS,
    "queues": schema.QUEUE,
    "addresses": schema.ADDRESS,
    "diverts": schema.DIVERT,
    "wildcard-addresses": schema.WILDCARDS,
    "management": schema.MANAGEMENT,
    "api-roles": schema.API_ROLES,
    "ldap": schema.LDAP,
    "metrics": schema.METRICS,
    "logging": schema.LOGGING,
    "audit": schema.AUDIT,
    "authentication": schema.AUTHENTICATION,
    "streams": schema.STREAM,
}


def read(text: str) -> Config:
    layers = Layers()
    layers.add_file(text, "f.toml")
    return build(layers, HOST, "/w/f.toml")


def found(old: str, new: str) -> dict[str, Change]:
    return {change.key: change for change in changes(read(old), read(new))}


@pytest.mark.parametrize("table", list(TABLES))
def test_every_key_of_the_configuration_says_what_its_change_reaches(table: str) -> None:
    assert REACH[table].keys() == TABLES[table].keys.keys()


def test_a_key_that_is_not_in_the_table_needs_a_restart() -> None:
    assert reach_of("acceptors", "of-tomorrow") is Reach.RESTART


def test_every_key_above_the_tables_and_of_acceptors_is_compared() -> None:
    names = {field.name for field in fields(Config)}
    assert {key.replace("-", "_") for key in REACH[""]} <= names
    names = {field.name for field in fields(Acceptor)} - {"name", "on_management"}
    assert {key.replace("-", "_") for key in REACH["acceptors"]} == names


def test_the_same_is_no_change_whatever_its_lines() -> None:
    text = (
        '[address-settings."#"]\nmax-size-messages = 3\n[addresses.a]\n[streams.s]\naddress="a"\n'
    )
    assert found(text, "\n\n" + text) == {}


def test_each_difference_has_its_key_values_reach_and_origin() -> None:
    old = (
        'name = "a"\nmax-disk-usage = 90\n[address-settings."#"]\nmax-size-messages = 3\n'
        "default-ring-size = 5\n[acceptors.all]\nendpoint = 'tcp:1:interface=127.0.0.1'\n"
        "[addresses.a]\nqueues = [{ name = 'q', ring-size = 5, exclusive = true }]\n"
        "[addresses.gone]\n[diverts.d]\naddress = 'a'\nforwarding-address = 'b'\n"
    )
    new = (
        'min-disk-free = "1GiB"\n[address-settings."#"]\nmax-size-messages = 4\n'
        "[address-settings.x]\nno-expiry = true\n"
        "[acceptors.all]\nendpoint = 'tcp:2:interface=127.0.0.1'\nconnection-ttl = 1000\n"
        "[addresses.a]\nqueues = [{ name = 'q', ring-size = 6 }, { name = 'r' }]\n"
        "[streams.s]\naddress = 'a'\n[logging]\nlevel = 'debug'\n"
    )
    told = found(old, new)
    assert {key: change.reach.value for key, change in told.items()} == {
        "name": "new-connections",
        "max-disk-usage": "at-once",
        "min-disk-free": "at-once",
        'address-settings."#".max-size-messages': "at-once",
        'address-settings."#".default-ring-size': "new-queues",
        "address-settings.x": "at-once",
        "acceptors.all.endpoint": "restart",
        "acceptors.all.connection-ttl": "new-connections",
        "addresses.a.queues.q.ring-size": "at-once",
        "addresses.a.queues.q.exclusive": "stays",
        "addresses.a.queues.r": "at-once",
        "addresses.gone": "stays",
        "diverts.d": "restart",
        "streams.s": "at-once",
        "logging.level": "at-once",
    }
    size = told['address-settings."#".max-size-messages']
    assert (size.old, size.new, size.origin) == (3, 4, "f.toml:3")
    assert (told["name"].old, told["name"].new, told["name"].origin) == ("a", "sluicegate", "")
    assert told["acceptors.all.endpoint"].new == "tcp:2:interface=127.0.0.1"
    assert told["addresses.gone"].old == {"routing-types": ["ANYCAST"], "queues": []}
    assert told["streams.s"].new == {"address": "a"}
    assert told["addresses.a.queues.q.ring-size"].origin == "f.toml:9"
    assert told["addresses.a.queues.q.exclusive"].origin == ""


def test_durability_above_the_tables_is_one_change() -> None:
    assert list(found("", 'durability = "write"\n')) == ["durability"]
    own = '[address-settings."#"]\ndurability = "write"\n'
    assert list(found("", own)) == ['address-settings."#"']


def test_what_is_in_force_keeps_what_needs_a_restart_and_names_it_again() -> None:
    old = read(
        "[acceptors.all]\nendpoint = 'tcp:1:interface=127.0.0.1'\n"
        "[acceptors.less]\nendpoint = 'tcp:3:interface=127.0.0.1'\n"
        "[diverts.d]\naddress = 'a'\nforwarding-address = 'b'\n"
    )
    new = read(
        "data-directory = '/other'\nscrub-rate = 65536\npersist-id-cache = false\n"
        "[acceptors.all]\nendpoint = 'tcp:2:interface=127.0.0.1'\namqp-credits = 500\n"
        "[acceptors.more]\nendpoint = 'tcp:4:interface=127.0.0.1'\n"
        "[management]\nenabled = false\nallowed-hosts = ['h']\n"
        "[[authentication]]\ntype = 'file'\npath = '/u'\n"
    )
    held = in_force(old, new)
    assert held.data_directory == old.data_directory
    assert held.journal_directory == old.journal_directory
    assert held.users_file == old.users_file
    assert held.persist_id_cache
    assert held.scrub_rate == 65536
    assert [a.name for a in held.acceptors] == ["all", "less"]
    assert held.acceptors[0].endpoint.text == "tcp:1:interface=127.0.0.1"
    assert held.acceptors[0].amqp_credits == 500
    assert held.management.enabled
    assert held.management.allowed_hosts == {"h"}
    assert [d.name for d in held.diverts] == ["d"]
    assert gone_diverts(held, new) == {"d"}
    first = [c for c in changes(old, new) if c.reach is Reach.RESTART]
    again = changes(held, new)
    assert [c.key for c in again] == [c.key for c in first]
    assert {"data-directory", "acceptors.more", "acceptors.less", "authentication"} <= {
        c.key for c in again
    }
    assert changes(held, replace(old, scrub_rate=65536)) != []
