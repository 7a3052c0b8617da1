"""`[api-roles]` and `[ldap]`: what they take, and what they refuse by name."""

from __future__ import annotations

import pytest

from gateway.config.check import HostFacts, build
from gateway.config.errors import ConfigError
from gateway.config.sources import Layers
from gateway.config.tree import Config
from gateway.model.roles import Role

HOST = HostFacts(memory_bytes=8 << 30, working_directory="/w", data_directory="/d")


def read(text: str) -> Config:
    layers = Layers()
    layers.add_file(text, "f.toml")
    return build(layers, HOST, "/etc/f.toml")


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


def test_roles_have_their_own_names_unless_others_are_written() -> None:
    assert read("").api_roles.roles().names[Role.EDIT] == {"edit"}
    roles = read('[api-roles]\nview = ["Monitoring", "ops"]\nadmin = []\n').api_roles.roles()
    assert roles.names == {
        Role.VIEW: {"Monitoring", "ops"},
        Role.EDIT: {"edit"},
        Role.MANAGE: {"manage"},
        Role.ADMIN: set(),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('view = "ops"', "f.toml:2: api-roles.view: needs an array of roles"),
        ('view = [""]', "is empty"),
        ("view = [1]", "needs a text"),
        ('viewer = ["x"]', "did you mean view?"),
    ],
)
def test_roles_that_are_none(text: str, told: str) -> None:
    assert told in refused(f"[api-roles]\n{text}\n")


def test_a_directory_with_everything() -> None:
    text = """
[ldap]
url = "ldap://ldap.example"
start-tls = true
ca-file = "ca.pem"
bind-dn = "cn=gate,dc=x"
password-file = "secret"
search-base = "ou=people,dc=x"
search-filter = "(&(objectClass=person)(mail={user}))"
user-attribute = "mail"
group-base = "ou=groups,dc=x"
connect-timeout = "2s"

[ldap.roles]
Ops = ["manage", "view"]
shop = ["seller"]
"""
    found = read(text).ldap
    assert found.address() == ("ldap.example", 389)
    assert (found.ca_file, found.password_file) == ("/etc/ca.pem", "/etc/secret")
    assert found.connect_timeout == 2000
    assert found.roles == {"ops": {"manage", "view"}, "shop": {"seller"}}
    assert read('[ldap]\nurl = "ldaps://[::1]"\nsearch-base = "x"\n').ldap.address() == ("::1", 636)
    assert read("").ldap.url == ""


LOCAL = 'url = "ldap://127.0.0.1:1389"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ldap: needs the key url"),
        ('url = "http://x"', "is no directory"),
        ('url = "ldap://"', "is no directory"),
        ('url = "ldap://x:99999"', "is no directory"),
        ('url = "ldap://x:0"', "is no directory"),
        ('url = "ldaps://cn=a:secret@x"', "is no directory"),
        ('url = "ldaps://x/dc=y"', "is no directory"),
        ('url = "ldap://ldap.example"\nsearch-base = "x"', "would send passwords as plain text"),
        ('url = "ldaps://x"\nstart-tls = true\nsearch-base = "x"', "TLS from its first byte"),
        (LOCAL, "one of the two says where users are"),
        (LOCAL + 'search-base = "x"\nuser-dn-template = "uid={user},x"', "one of the two"),
        (LOCAL + 'user-dn-template = "uid=ann"', "needs {user} once"),
        (LOCAL + 'user-dn-template = "uid={user},ou={user}"', "needs {user} once"),
        (LOCAL + 'search-base = "x"\nsearch-filter = "(uid=*)"', "needs {user} once"),
        (LOCAL + 'search-base = "x"\ngroup-filter = "(cn=x)"', "needs {dn} or {user}"),
        (LOCAL + 'search-base = "x"\nbind-dn = "cn=a"', "password-file: is missing"),
        (LOCAL + 'search-base = "x"\npassword-file = "f"', "bind-dn: is missing"),
        (LOCAL + 'search-base = "x"\nroles = { a = ["b"] }', "group-base: is missing"),
        (LOCAL + 'search-base = "x"\nroles = { a = "b" }', "needs an array of roles"),
        (LOCAL + 'search-base = "x"\nroles = 3', "needs a table of groups"),
        (LOCAL + 'search-base = "x"\nthreads = 0', "threads"),
        (LOCAL + 'search-base = "x"\npassword = "secret"', "did you mean password-file?"),
    ],
)
def test_a_directory_that_cannot_be(text: str, told: str) -> None:
    said = refused(f"[ldap]\n{text}\n")
    assert told in said
    assert "secret" not in said
