"""What is asked of a real directory, and what it says: users, groups, hostile names, TLS."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.directory.asking import Directory
from gateway.directory.settings import DirectorySettings, Found, UnreachableError
from tests.certificates import Authority
from tests.directory import slapd
from tests.directory.server import GROUPS, PEOPLE, SERVICE, SERVICE_PASSWORD, directory

ROLES = {"ops": frozenset({"manage"}), "readers": frozenset({"view"}), "none": frozenset({"x"})}
MAKERS = [
    pytest.param(directory, id="ldaptor"),
    pytest.param(
        slapd.slapd,
        id="slapd",
        marks=pytest.mark.skipif(slapd.PROGRAM is None, reason="there is no slapd"),
    ),
]


@pytest.fixture(scope="module", params=MAKERS)
def settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DirectorySettings]:
    """A directory in plain text, looked into by a service of its own."""
    folder = tmp_path_factory.mktemp("directory")
    password = folder / "password"
    password.write_text(SERVICE_PASSWORD + "\nnot this line\n")
    with request.param(folder / "served" if request.param is slapd.slapd else folder) as (_, port):
        yield DirectorySettings(
            host="127.0.0.1",
            port=port,
            bind_dn=SERVICE,
            password_file=str(password),
            search_base=PEOPLE,
            group_base=GROUPS,
            roles=ROLES,
        )


def test_users_with_the_roles_of_their_groups(settings: DirectorySettings) -> None:
    asked = Directory(settings)
    assert asked.ask("ann", "right") == Found(user="ann", roles=frozenset({"manage", "view"}))
    assert asked.ask("bob", "other") == Found(user="bob", roles=frozenset({"view"}))
    # The name is the directory's, however it was written.
    assert asked.ask("ANN", "right") == asked.ask("ann", "right")
    no_groups = Directory(replace(settings, group_base="", roles={}))
    assert no_groups.ask("ann", "right") == Found(user="ann", roles=frozenset())


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ann", "wrong"),
        ("ann", "other"),
        ("ann", ""),  # a directory would let it in, as nobody
        ("nobody", "right"),
        ("nobody", ""),
        ("", "right"),
        ("twin", "right"),  # two entries
        ("*", "right"),
        ("a*", "right"),
        ("ann)(uid=*", "right"),
        ("*)(|(uid=*", "right"),
        ("ann)(|(objectClass=*)", "right"),
        ("ann\\2a", "right"),
        ("ann\0", "right"),
        ("(", "right"),
        ("\\", "right"),
        ("é" * 100, "right"),
        ("ann", "right\0"),
        ("ann", "\xad"),  # nothing is left of it when it is prepared [RFC 4013]
        ("ann", "x" * 1000),
    ],
)
def test_who_is_not_let_in(settings: DirectorySettings, user: str, password: str) -> None:
    assert Directory(settings).ask(user, password) is None


def test_a_name_by_a_template(settings: DirectorySettings) -> None:
    template = replace(settings, search_base="", user_dn_template="uid={user}," + PEOPLE)
    for one in (template, replace(template, bind_dn="", password_file="")):
        asked = Directory(one)
        assert asked.ask("ann", "right") == Found(user="ann", roles=frozenset({"manage", "view"}))
        assert asked.ask("Ann", "right") == asked.ask("ann", "right")
        for user in ("nobody", "ann,ou=people", "ann+cn=Ann", "*", "#616e6e", "", " ", "a\\", '"'):
            assert asked.ask(user, "right") is None
        assert asked.ask("ann", "wrong") is None
        assert asked.ask("ann", "") is None


def test_a_service_that_is_not_let_in_is_told_and_not_its_password(
    settings: DirectorySettings, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("no-secret-at-all")
    asked = Directory(replace(settings, password_file=str(tmp_path / "wrong")))
    with pytest.raises(UnreachableError, match="cn=gate,dc=example, the bind-dn") as caught:
        asked.ask("ann", "right")
    assert "no-secret" not in str(caught.value)


def test_a_password_file_without_one(settings: DirectorySettings, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="no password"):
        Directory(replace(settings, password_file=str(tmp_path / "empty")))
    with pytest.raises(FileNotFoundError):
        Directory(replace(settings, password_file=str(tmp_path / "none")))


def test_nobody_listens(settings: DirectorySettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    asked = Directory(replace(settings, port=port))
    with pytest.raises(UnreachableError):
        asked.ask("ann", "right")


@pytest.mark.parametrize("maker", MAKERS)
def test_tls_is_checked(maker: Any, tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    (tmp_path / "served").mkdir()
    where = tmp_path / "served" / "x"
    if maker is directory:
        where.mkdir()
    with maker(where, ours.issue("127.0.0.1")) as (_, port):
        settings = DirectorySettings(
            host="127.0.0.1",
            port=port,
            tls=True,
            ca_file=str(ours.root),
            user_dn_template="uid={user}," + PEOPLE,
        )
        assert Directory(settings).ask("ann", "right") == Found(user="ann", roles=frozenset())
        # Signed by somebody else, for another name, and by nobody that the system knows.
        for wrong in (
            replace(settings, ca_file=str(other.root)),
            replace(settings, host="localhost"),
            replace(settings, ca_file=""),
            replace(settings, tls=False),
            replace(settings, tls=False, start_tls=True),
        ):
            with pytest.raises(UnreachableError):
                Directory(replace(wrong, answer_ms=1000)).ask("ann", "right")


def test_a_process_that_is_stopped_is_waited_for_so_long(tmp_path: Path) -> None:
    with directory(tmp_path) as (process, port):
        settings = DirectorySettings(
            host="127.0.0.1", port=port, answer_ms=1000, user_dn_template="uid={user}," + PEOPLE
        )
        assert Directory(settings).ask("ann", "right") is not None
        subprocess.run(["kill", "-STOP", str(process.pid)], check=True)
        with pytest.raises(UnreachableError):
            Directory(settings).ask("ann", "right")
        subprocess.run(["kill", "-CONT", str(process.pid)], check=True)
        assert Directory(settings).ask("ann", "right") is not None
