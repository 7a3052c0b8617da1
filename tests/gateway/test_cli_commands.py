"""Commands that need no gateway: what they print, what they refuse, what they load."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import __version__
from gateway.cli.main import COMMANDS, main
from gateway.security.passwords import verify_password
from gateway.security.users import parse_users
from gateway.trial.scratch import importing_environment


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    for name in list(os.environ):
        if name.startswith("SLUICEGATE"):
            monkeypatch.delenv(name)


def run(*arguments: str) -> int:
    """Run the command line in this process; returns its exit status."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


def run_process(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version") == 0
    assert capsys.readouterr().out == f"sluicegate {__version__}\n"
    assert run("version", "--json") == 0
    assert json.loads(capsys.readouterr().out)["version"] == __version__


def test_help_lists_every_command_without_loading_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_a_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    assert f"sluicegate {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("bogus",), ("send",), ("run", "--nonsense"), ("receive", "a", "--limit", "x"), ("user", "x")],
)
def test_wrong_usage_is_64(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 64
    assert "Error:" in capsys.readouterr().err


def test_a_wrong_configuration_lists_every_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f.toml").write_text("nam = 1\n[acceptors.a]\nprotocols = ['X']\n")
    assert run("run", "-c", "f.toml", "--set", "name=5") == 64
    error = capsys.readouterr().err
    assert error.startswith("error: bad-configuration: 4 mistakes:\n")
    assert "f.toml:1: nam: unknown key; did you mean name?" in error
    assert "--set name=5: name: needs a text, not 5" in error


def test_user_add_writes_a_private_file_that_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f.toml").write_text("[[authentication]]\ntype = 'file'\npath = 'etc/users.toml'\n")
    path = tmp_path / "etc" / "users.toml"
    done = run_process("user", "add", "ann", "--password-stdin", "-c", "f.toml", text="s3cret\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(path) in done.stdout
    assert path.stat().st_mode & 0o777 == 0o600
    user = parse_users(path.read_text())["ann"]
    assert user.roles == frozenset()
    assert verify_password(user.password, "s3cret")
    assert "s3cret" not in path.read_text()

    again = run_process("user", "add", "ann", "--password-stdin", "-c", "f.toml", text="x\n")
    assert again.returncode == 64
    assert "exists already" in again.stderr
    assert "try: add --replace" in again.stderr

    replaced = run_process(
        "user", "add", "ann", "--replace", "--password-stdin", "-c", "f.toml", text="new\n"
    )
    assert replaced.returncode == 0
    assert verify_password(parse_users(path.read_text())["ann"].password, "new")


def test_user_add_follows_a_link_instead_of_replacing_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "users.toml").symlink_to(tmp_path / "real" / "users.toml")
    done = run_process("user", "add", "ann", "--password-stdin", "--data", "data", text="x\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "users.toml").is_symlink()
    assert "ann" in parse_users((tmp_path / "real" / "users.toml").read_text())


def test_user_add_writes_a_verifier_where_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "data" / "users.toml"
    given = ("user", "add", "ann", "--password-stdin", "--data", "data")
    assert run_process(*given, "--scram", text="se:cret\n").returncode == 0
    (made,) = parse_users(path.read_text())["ann"].verifiers.values()
    salted = hashlib.pbkdf2_hmac("sha256", b"se:cret", made.salt, made.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert made.stored_key == hashlib.sha256(client_key).digest()
    assert made.server_key == hmac.digest(salted, b"Server Key", "sha256")
    assert run_process(*given, "--replace", text="other\n").returncode == 0
    assert parse_users(path.read_text())["ann"].verifiers == {}
    refused = run_process(*given, "--replace", "--scram", text="bell\a\n")
    assert refused.returncode == 64
    assert "cannot be used with SCRAM-SHA-256" in refused.stderr


@pytest.mark.parametrize(
    ("name", "password", "word"),
    [
        ("ann", "", "password is empty"),
        ("ann", "x" * 2000, "longer than 1024"),
        ("a:b", "x", "colon"),
        (" ", "x", "name is empty"),
    ],
)
def test_impossible_users(name: str, password: str, word: str) -> None:
    done = run_process("user", "add", name, "--password-stdin", "--data", "d", text=password + "\n")
    assert done.returncode == 64
    assert word in done.stderr


def test_a_broken_users_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    users = tmp_path / "d" / "users.toml"
    users.write_text("[users.ann]\npassword = 'plain'\n")
    done = run_process("user", "add", "bob", "--password-stdin", "--data", "d", text="x\n")
    assert done.returncode == 64
    assert users.read_text() == "[users.ann]\npassword = 'plain'\n"


def test_a_users_file_that_cannot_be_written() -> None:
    done = run_process("user", "add", "bob", "--password-stdin", "--data", "/proc/x", text="x\n")
    assert done.returncode == 73
    assert "error: bad-users-file:" in done.stderr


def test_explain_reads_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.toml").write_text(
        '[address-settings."#"]\nmax-size-messages = 5\n[address-settings."a.#"]\n'
        'address-full-policy = "FAIL"\ndead-letter-address = ""\n'
    )
    assert run("explain", "a.b", "-c", "f.toml", "--json") == 0
    items = {i["key"]: i for i in json.loads(capsys.readouterr().out)["items"]}
    assert items["max-size-messages"] == {
        "key": "max-size-messages",
        "value": 5,
        "match": "#",
        "origin": "f.toml:2",
    }
    assert items["address-full-policy"]["value"] == "FAIL"
    assert items["dead-letter-address"]["value"] is None
    assert items["default-ring-size"]["match"] is None
    assert run("explain", "a.b", "-c", "f.toml") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.split() == ["dead-letter-address", "(none)", 'address-settings."a.#"', "f.toml:5"]
        for line in lines
    )
    assert any(line.split() == ["auto-create-queues", "true", "default"] for line in lines)


def test_explain_refuses_an_impossible_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "$x", "--set", "name=a") == 64
    assert "error: bad-name:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "attempt"),
    [
        (("explain", "a", "--url", "http://127.0.0.1:1"), "sluicegate explain a -c FILE"),
        (("browse", "a", "--url", "http://127.0.0.1:1"), "sluicegate run"),
        (("send", "a", "x", "--url", "amqp://127.0.0.1:1"), "sluicegate run"),
        (("receive", "a", "--url", "127.0.0.1:1"), "sluicegate run"),
    ],
)
def test_nobody_there_is_69_and_says_what_to_try(
    arguments: tuple[str, ...], attempt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 69
    error = capsys.readouterr().err
    assert error.startswith("error: not-connected: ")
    assert "refused" in error
    assert f"try: {attempt}" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "a", "x", "--url", "http://h"),
        ("browse", "a", "--url", "amqp://h"),
        ("send", "a", "x", "-H", "novalue"),
    ],
)
def test_wrong_urls_and_headers_are_64(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 64


def test_client_commands_load_neither_twisted_nor_structlog(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from gateway.cli import main, messages, browse, explain, amqp_client, user\n"
        "bad = [m for m in ('twisted', 'structlog', 'pyarrow') if m in sys.modules]\n"
        "sys.exit(' '.join(bad) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=importing_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["run", "verify", "explain"])
def test_a_reader_who_leaves_is_no_error(command: str, tmp_path: Path) -> None:
    arguments = {
        "run": "--help",
        "verify": "data verify --help",
        "explain": "explain a --set name=x",
    }[command]
    # `true` has left long before anything is written.
    script = f"{{ sleep 1; {sys.executable} -m gateway {arguments}; echo $? >status; }} | true"
    done = subprocess.run(
        ["sh", "-c", script],
        env=importing_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert (tmp_path / "status").read_text() == "141\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("run", "--data", "/dev/null"), 74, "/dev/null: Not a directory. The data directory is"),
        (("run", "--data", "/dev/null/x"), 74, "give --data another"),
        (
            ("run", "--data", "d", "--set", "journal-directory=/dev/null"),
            74,
            "Give journal-directory another directory.",
        ),
        (("run", "--salvage", "--data", "/dev/null"), 74, "Not a directory"),
        (("data", "verify", "/dev/null"), 66, "There is no journal in /dev/null"),
        (("data", "compact", "/dev/null"), 66, "There is no journal in /dev/null"),
        (("user", "add", "x", "--password-stdin", "--data", "/dev/null"), 73, "Not a directory"),
        (("bench", "--data", "/dev/null"), 74, "Not a directory"),
    ],
)
def test_a_data_directory_that_is_none(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = run_process(*arguments, text="x\n")
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_names_the_key_that_gives_another(tmp_path: Path) -> None:
    free = "tcp:0:interface=127.0.0.1"
    names = ("acceptors.all", "acceptors.stomp", "management")
    for taken in names:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            ends = dict.fromkeys(names, free) | {taken: free.replace("0", str(port), 1)}
            sets = [part for n, e in ends.items() for part in ("--set", f"{n}.endpoint={e}")]
            done = run_process("run", "--data", str(tmp_path / "d"), *sets)
        assert done.returncode == 69, done.stderr
        assert f"try: --set '{taken}.endpoint=" in done.stderr


def test_every_exit_status_is_in_the_docs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text("utf-8")
    _, _, table = page.partition("| status |")
    told = {int(row.split("|")[1]) for row in table.partition("\n\n")[0].splitlines()[2:]}
    from gateway.assembly.app import EX_SOFTWARE
    from gateway.cli import data, errors

    named = {value for name, value in vars(errors).items() if name.startswith("EX_")}
    assert told == named | {0, 130, 141, EX_SOFTWARE, data.EX_NOINPUT}
