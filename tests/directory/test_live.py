"""A gateway with a directory: its users come in by every protocol, with their groups' roles."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST
from tests.directory.server import GROUPS, PEOPLE, SERVICE, SERVICE_PASSWORD, directory
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer
from tests.interop.support import add_user

SETTINGS = """
[ldap]
url = "ldap://127.0.0.1:{port}"
bind-dn = "{service}"
password-file = "{folder}/password"
search-base = "{people}"
group-base = "{groups}"
answer-timeout = "1s"
cache-time = "{cache}"
[ldap.roles]
Ops = ["admin"]
readers = ["view", "shop"]
[security-settings."#"]
send = ["shop"]
create-address = ["shop"]
create-durable-queue = ["shop"]
"""


def amqp(live: Live, user: str, password: str) -> BlockingConnection:
    return BlockingConnection(
        f"amqp://{HOST}:{live.gateway.port}",
        timeout=10,
        user=user,
        password=password,
        allow_insecure_mechs=True,
    )


def test_users_of_a_directory(gateway_process: Start, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SERVICE_PASSWORD)
    with directory(tmp_path) as (process, port):
        text = SETTINGS.format(
            port=port,
            service=SERVICE,
            folder=tmp_path,
            people=PEOPLE,
            groups=GROUPS,
            cache="1h",
        )
        live = Live(gateway_process, tmp_path, text)
        add_user(live.gateway, "root", "root", "--role", "view", "--scram")
        live.wait_log("users.reloaded")
        # The directory has an administrator, so that the file needs none.
        assert live.log("roles.no_administrator") == []
        ann, bob = ("ann", "right"), ("bob", "other")
        one = amqp(live, *bob)
        one.create_sender("q").send(Message(body="1"))
        one.close()
        amqp(live, "root", "root").close()
        stomp = StompPeer(live.gateway.stomp_port, bob)
        stomp.send("q", b"2", "r")
        assert stomp.read()[0] == "RECEIPT"
        assert live.ask("GET", "/api/v1/queues", login=bob)[0] == 200
        assert live.ask("POST", "/api/v1/config:reload", login=bob)[0] == 403
        assert live.ask("POST", "/api/v1/config:reload", login=ann)[0] == 200
        for wrong in (("bob", "right"), ("bob", ""), ("*", "other"), ("nobody", "x")):
            assert live.ask("GET", "/api/v1/queues", login=wrong)[0] == 401
            assert StompPeer(live.gateway.stomp_port, wrong).greeting[0] == "ERROR"
        with pytest.raises(ConnectionException):
            amqp(live, "bob", "wrong")
        # Other users in the file are nothing to those of the directory.
        add_user(live.gateway, "eve", "x")
        live.wait_log("users.reloaded", 2)
        stomp.send("q", b"3", "s")
        assert stomp.read()[0] == "RECEIPT"
        process.kill()
        process.wait(30)
        # Who is remembered comes in; whoever is not is refused, and the log says why.
        assert StompPeer(live.gateway.stomp_port, bob).greeting[0] == "CONNECTED"
        assert StompPeer(live.gateway.stomp_port, ("twin", "x")).greeting[0] == "ERROR"
        (told,) = live.wait_log("directory.unreachable")
        assert "refused" in told["error"].lower()
        assert live.log("login.refused")[-1]["reason"] == "unreachable"
        assert live.ask("GET", "/api/v1/queues", login=("root", "root"))[0] == 200
        log = live.gateway.log.read_text()
        assert SERVICE_PASSWORD not in log
        assert '"other"' not in log
