"""The configuration read again by the real process: answers, log, refusals, the command."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import importing_environment
from gateway.trial.self_signed import self_signed
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer
from tests.logs import whole_log

LIMITED = '[address-settings."#"]\nmax-size-messages = {}\naddress-full-policy = "FAIL"\n'


def test_sighup_reads_the_file_again_and_says_what_is_different(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, LIMITED.format(10))
    live.write(LIMITED.format(20))
    os.kill(live.pid, signal.SIGHUP)
    (changed,) = live.wait_log("config.changed")
    assert (changed["key"], changed["old"], changed["new"]) == (
        'address-settings."#".max-size-messages',
        10,
        20,
    )
    assert changed["effect"] == "at-once"
    assert changed["origin"].endswith("gate.toml:2")
    (told,) = live.wait_log("config.reloaded")
    assert (told["changes"], told["applied"], told["needs_restart"]) == (1, 1, "")
    assert live.gateway.running()


def test_the_api_answers_with_the_differences_and_says_when(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, LIMITED.format(10))
    status, before = live.ask("GET", "/api/v1/config")
    assert (status, before["reloads"], before["needsRestart"]) == (200, 0, [])
    assert before["file"] == str(live.file)
    answer = live.reload(LIMITED.format(20))
    assert answer["items"] == [
        {
            "key": 'address-settings."#".max-size-messages',
            "old": 10,
            "new": 20,
            "effect": "at-once",
            "origin": f"{live.file}:2",
        }
    ]
    _, after = live.ask("GET", "/api/v1/config")
    assert after["reloads"] == 1
    assert after["loadedMs"] == answer["loadedMs"] >= before["loadedMs"]
    assert live.reload()["items"] == []
    assert live.ask("POST", "/api/v1/config:reload", {"x": 1})[0] == 422
    assert live.ask("GET", "/api/v1/config:reload")[0] == 405


RIGHT = "global-max-messages = 9\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('nam = "x"\n', ["gate.toml:2: nam: unknown key; did you mean name?"]),
        (
            LIMITED.format(0),
            ['gate.toml:3: address-settings."#".max-size-messages: a limit of 0'],
        ),
        (
            '[address-settings."#"]\ndefault-ring-size = 0\n',
            ['gate.toml:3: address-settings."#".default-ring-size: a ring of 0'],
        ),
        (
            '[acceptors.more]\nendpoint = "tcp:0:interface=0.0.0.0"\n',
            ["gate.toml:3: acceptors.more.endpoint: 0.0.0.0:0 is reachable"],
        ),
        ("[address-settings\n", ["gate.toml: is not TOML"]),
        (
            'nam = "x"\n[addresses.q]\nqueues = [{ name = "q", ring-size = 0 }]\n',
            ["gate.toml:2: nam", "gate.toml:4: addresses.q.queues[0].ring-size: a ring of 0"],
        ),
    ],
)
def test_a_bad_file_changes_nothing_and_names_every_mistake(
    gateway_process: Start, tmp_path: Path, text: str, told: list[str]
) -> None:
    live = Live(gateway_process, tmp_path, LIMITED.format(10))
    live.write(RIGHT + text)
    status, answer = live.ask("POST", "/api/v1/config:reload")
    assert (status, answer["code"]) == (422, "bad-configuration")
    head, *lines = answer["message"].split("\n")
    assert head.endswith("nothing was changed")
    assert len(lines) == len(told) == len(answer["problems"])
    for line, wanted in zip(lines, told, strict=True):
        assert line.removeprefix(f"{tmp_path}/").startswith(wanted), line
    os.kill(live.pid, signal.SIGHUP)
    refused = live.wait_log("config.refused", 2 * len(told))
    assert {record["why"] for record in refused} == {"API", "SIGHUP"}
    assert [record["where"] for record in refused[: len(told)]] == [
        problem["where"] for problem in answer["problems"]
    ]
    _, shown = live.ask("GET", "/api/v1/config")
    assert shown["reloads"] == 0
    assert shown["refused"]["problems"] == answer["problems"]
    # Nothing of what stood beside the mistake was taken over either.
    assert live.effects(live.reload(RIGHT + LIMITED.format(11))) == {
        "global-max-messages": "at-once",
        'address-settings."#".max-size-messages': "at-once",
    }
    assert live.ask("GET", "/api/v1/config")[1]["refused"] is None


def test_what_needs_a_restart_is_named_each_time_and_not_applied(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path)
    text = (
        'journal-file-size = "8MiB"\nscrub-rate = "1MiB"\n'
        "[metrics]\nenabled = false\n"
        '[acceptors.all]\nprotocols = ["AMQP", "STOMP", "WS"]\nmax-frame-size = 4096\n'
        '[acceptors.stomp]\nprotocols = ["STOMP"]\n'
        '[acceptors.more]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
    )
    for _ in range(2):
        answer = live.reload(text)
        assert sorted(answer["needsRestart"]) == [
            "acceptors.more",
            "journal-file-size",
            "metrics.enabled",
        ]
        shown = live.ask("GET", "/api/v1/config")[1]
        assert sorted(shown["needsRestart"]) == sorted(answer["needsRestart"])
    assert live.effects(live.reload("")) == {
        "scrub-rate": "at-once",
        "acceptors.all.max-frame-size": "new-connections",
    }
    told = live.wait_log("config.reloaded")[0]
    assert set(told["needs_restart"].split()) == set(answer["needsRestart"])


def test_options_and_environment_go_on_winning_over_the_file(
    gateway_process: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE__GLOBAL_MAX_MESSAGES", "7")
    live = Live(gateway_process, tmp_path, settings=("transaction-timeout=1000",))
    answer = live.reload(
        "global-max-messages = 9\ntransaction-timeout = 2000\nstore-task-limit = 77\n"
    )
    assert live.effects(answer) == {"store-task-limit": "at-once"}


def test_under_twist_sighup_reads_it_again(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    loopback = "tcp:0:interface=127.0.0.1"
    head = (
        f'data-directory = "{tmp_path}/data"\n[acceptors.all]\nendpoint = "{loopback}"\n'
        f'[management]\nendpoint = "{loopback}"\n'
    )
    file.write_text(head)
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "twisted", "sluicegate", "--config", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=output,
            env=importing_environment(),
            cwd=tmp_path,
        )
    try:
        wait_for(log, "gateway.ready")
        file.write_text(head + '[logging]\nlevel = "debug"\n')
        process.send_signal(signal.SIGHUP)
        wait_for(log, "config.reloaded")
        changed = next(line for line in log.read_text().splitlines() if "config.changed" in line)
        assert json.loads(changed)["key"] == "logging.level"
        process.send_signal(signal.SIGHUP)
        wait_for(log, "config.reloaded", 2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
        assert "gateway.stopped" in log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(log: Path, word: str, count: int = 1) -> None:
    found = threading.Event()
    for _ in range(1500):
        if log.read_text().count(word) >= count:
            return
        found.wait(0.02)
    raise AssertionError(log.read_text())


def test_two_reloads_at_once_and_many_signals_have_an_answer_each(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, LIMITED.format(10))
    live.write(LIMITED.format(20))
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(live.reload())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        os.kill(live.pid, signal.SIGHUP)
    for thread in threads:
        thread.join()
    # One of all that asked has brought it; to the others nothing was different.
    live.wait_log("config.changed")
    whole_log(live.gateway)
    assert len(live.log("config.changed")) == 1
    assert sum(answer["changed"] for answer in answers) <= 1
    assert len(answers) == 4


def test_the_log_level_changes_and_the_change_is_told_either_way(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path)
    live.reload('[logging]\nlevel = "error"\n')
    assert live.wait_log("config.changed")[0]["new"] == "error"
    live.ask("POST", "/api/v1/queues", {"name": "q", "address": "q"})
    live.reload('[logging]\nlevel = "error"\n[addresses.quiet]\n')
    live.reload('[logging]\nlevel = "info"\n[addresses.quiet]\n[addresses.told]\n')
    told = [record["key"] for record in live.wait_log("config.changed", 3)]
    assert told == ["logging.level", "logging.level", "addresses.told"]
    assert live.log("address.configured") == []  # while only errors were told
    assert live.ask("GET", "/api/v1/addresses/quiet")[0] == 200


def test_periods_and_limits_of_the_gateway_change_at_once(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, "message-expiry-scan-period = -1\n")
    peer = StompPeer(live.gateway.stomp_port)
    peer.write("SEND\ndestination:q\nexpires:1\nreceipt:r\n\n", b"old")
    assert peer.read()[0] == "RECEIPT"
    text = (
        "message-expiry-scan-period = 50\nscrub-period = '1h'\nscrub-rate = '1MiB'\n"
        "sync-interval = 20\nstore-linger = 0\nstore-lag-limit = -1\nstore-task-limit = 5000\n"
        "journal-compact-min-files = 0\nglobal-max-messages = 2\ndisk-scan-period = 100\n"
        "address-queue-scan-period = 100\nid-cache-size = 5\n"
    )
    effects = live.effects(live.reload(text))
    assert len(effects) == 12
    assert set(effects.values()) == {"at-once"}
    live.until(lambda: live.ask("GET", "/api/v1/queues/ExpiryQueue")[0] == 200)
    _, scrub = live.ask("GET", "/api/v1/scrub")
    assert scrub["rateBytesPerSecond"] == 1 << 20
    assert 3500 < scrub["nextInSeconds"] <= 3600
    # And all of it back: what was switched off goes on, what ran stops.
    assert set(live.effects(live.reload("message-expiry-scan-period = -1\n")).values()) == {
        "at-once"
    }
    peer.write("SEND\ndestination:q\nexpires:1\nreceipt:s\n\n", b"old")
    assert peer.read()[0] == "RECEIPT"
    assert live.ask("GET", "/api/v1/scrub")[1]["rateBytesPerSecond"] == 4 << 20
    assert peer.silent(0.3)
    assert live.ask("GET", "/api/v1/queues/q")[1]["messageCount"] == 1


def test_hosts_wildcards_and_names_for_new_connections(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, "[addresses.'w.#']\nqueues = [{ name = 'w' }]\n")
    peer = StompPeer(live.gateway.stomp_port)

    def reached() -> int:
        peer.send("w.a", b"x", "r")
        assert peer.read()[0] == "RECEIPT"
        found: int = live.ask("GET", "/api/v1/queues/w")[1]["messageCount"]
        return found

    def status(host: str) -> int:
        return live.ask("GET", "/api/v1/config", host=host)[0]

    assert (reached(), status("gate.example")) == (1, 421)
    declared = live.file.read_text()
    answer = live.reload(
        declared + "[wildcard-addresses]\nrouting-enabled = false\n"
        "[management]\nallowed-hosts = ['gate.example']\n"
        "[acceptors.stomp]\nprotocols = ['STOMP']\ndisable-stomp-server-header = true\n"
        "[acceptors.all]\n"
    )
    assert live.effects(answer) == {
        "wildcard-addresses.routing-enabled": "at-once",
        "management.allowed-hosts": "at-once",
        "acceptors.stomp.disable-stomp-server-header": "new-connections",
    }
    assert (reached(), status("gate.example")) == (1, 200)
    assert "server" in peer.greeting[1]
    assert "server" not in StompPeer(live.gateway.stomp_port).greeting[1]
    live.reload(declared)
    assert (reached(), status("gate.example")) == (2, 421)


@pytest.mark.parametrize("how", ["kill", "gone"])
def test_on_a_terminal_a_hang_up_reloads_and_its_end_stops_in_order(
    tmp_path: Path, how: str
) -> None:
    master, slave = pty.openpty()
    loopback = "tcp:0:interface=127.0.0.1"
    sets = [f"{name}.endpoint={loopback}" for name in ("acceptors.all", "management")]
    sets += [f"acceptors.stomp.endpoint={loopback}", 'logging.format="json"']
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "run", "--data", str(tmp_path / "data")]
        + [part for one in sets for part in ("--set", one)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=importing_environment(),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads yet
    )
    os.close(slave)
    try:
        read_until(master, b"gateway.ready")
        if how == "kill":
            process.send_signal(signal.SIGHUP)
            read_until(master, b"config.reloaded")
            process.send_signal(signal.SIGTERM)
            os.set_blocking(master, False)
            assert process.wait(30) == 0
        else:
            os.close(master)
            master = -1
            assert process.wait(30) == 0
    finally:
        if master >= 0:
            os.close(master)
        if process.poll() is None:
            process.kill()
            process.wait()


def read_until(terminal: int, word: bytes) -> None:
    """Read what a terminal shows until it has shown this."""
    seen = b""
    while word not in seen:
        ready, _, _ = select.select([terminal], [], [], 30)
        assert ready, seen
        seen += os.read(terminal, 4096)


def cli(*arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )


def test_the_command_shows_a_table_or_json_and_the_mistakes(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, LIMITED.format(10))
    url = live.gateway.url
    assert cli("reload", "--url", url).stdout == "nothing is different\n"
    live.write("journal-file-size = 8388608\n" + LIMITED.format(20))
    done = cli("reload", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "NEEDS A RESTART  journal-file-size: 33554432 -> 8388608",
        'at once          address-settings."#".max-size-messages: 10 -> 20',
        "1 needs a restart and is not in force",
    ]
    shown = json.loads(cli("reload", "--json", "--url", url).stdout)
    assert shown["needsRestart"] == ["journal-file-size"]
    live.write("nam = 1\nglobal-max-messages = 'x'\n")
    wrong = cli("reload", "--url", url)
    assert wrong.returncode == 64
    assert wrong.stderr.startswith("error: bad-configuration: 2 mistakes; nothing was changed\n")
    assert "gate.toml:1: nam: unknown key; did you mean name?" in wrong.stderr
    status = cli("reload", "--status", "--url", url).stdout
    assert "3 reloads since the start" in status
    assert "needs a restart: journal-file-size" in status
    assert "gate.toml:2: global-max-messages" in status


def test_a_reload_refuses_certificates_that_a_start_would_refuse(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path)
    pair = self_signed(tmp_path)
    secure = (
        '[acceptors.all]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
        '[acceptors.secure]\nendpoint = "tcp:0:interface=127.0.0.1"\n'
        '[acceptors.secure.tls]\ncertificate = "certificate.pem"\nkey = "{}"\n'
    )
    live.write(secure.format("nowhere.pem"))
    refused = cli("reload", "--url", live.gateway.url)
    assert refused.returncode == 64
    told = "gate.toml:7: acceptors.secure.tls.key: "
    assert told + f"{tmp_path}/nowhere.pem cannot be read: No such file" in refused.stderr
    live.write(secure.format("key.pem"))
    done = cli("reload", "--url", live.gateway.url)
    assert done.returncode == 0, done.stderr
    assert str(pair.key) in done.stdout
