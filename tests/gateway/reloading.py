"""What tests of a reload share: a gateway on a file that is written anew, and its answers."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.trial.scratch import HOST, ScratchGateway
from tests.logs import records

Start = Callable[..., ScratchGateway]


class Live:
    """A gateway process, its file and its log."""

    def __init__(self, start: Start, where: Path, text: str = "", **more: Any) -> None:
        self.file = where / "gate.toml"
        self.file.write_text(text)
        self.gateway = start(config=self.file, **more)

    @property
    def pid(self) -> int:
        return self.gateway.pid

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        login: tuple[str, str] | None = None,
        host: str | None = None,
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(HOST, self.gateway.management_port, timeout=30)
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            if host is not None:
                headers["Host"] = host
            if login is not None:
                encoded = base64.b64encode(":".join(login).encode()).decode()
                headers["Authorization"] = f"Basic {encoded}"
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def reload(self, text: str | None = None, login: tuple[str, str] | None = None) -> Any:
        """Reload over the API; what it answered, which must be 200."""
        if text is not None:
            self.write(text)
        status, answer = self.ask("POST", "/api/v1/config:reload", login=login)
        assert status == 200, answer
        return answer

    def effects(self, answer: Any) -> dict[str, str]:
        return {item["key"]: item["effect"] for item in answer["items"]}

    def log(self, event: str) -> list[dict[str, Any]]:
        return records(self.gateway, event)

    def wait_log(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Return the records of an event, once there are so many."""
        return self.until(lambda: found if len(found := self.log(event)) >= count else None)

    def until(self, find: Callable[[], Any]) -> Any:
        """Return what `find` returns, once it is something."""
        deadline = time.monotonic() + 30
        while True:
            found = find()
            if found:
                return found
            assert time.monotonic() < deadline, "it never came to that"
            time.sleep(0.02)
