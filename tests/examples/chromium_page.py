"""One page of a headless Chromium, driven by Puppeteer in Node (`web/drive.js`), in JSON."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.interop.browser import NoBrowserError, find_browser
from tests.interop.node import ORDER_BOARD, NoNodeError, install

#: A machine with two busy cores takes long to start a browser.
START_SECONDS = 90.0
SECONDS = 30.0


class ChromiumPage:
    """A Chromium with one page; skips the test where there is none."""

    def __init__(self, folder: Path) -> None:
        """Start it with a profile of its own."""
        try:
            node, chromium = install(ORDER_BOARD), find_browser()
        except NoBrowserError as error:
            pytest.skip(str(error))
        except NoNodeError as error:
            pytest.fail(str(error))
        # Chromium's sandbox refuses to run for root.
        flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        given = {"chromium": chromium, "folder": str(folder), "flags": flags}
        self._process = subprocess.Popen(
            [*node, str(ORDER_BOARD / "drive.js"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._answer(START_SECONDS)

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            self._answers.put(line)

    def _answer(self, seconds: float) -> Any:
        answer = json.loads(self._answers.get(timeout=seconds))
        assert "failed" not in answer, answer["failed"]
        return answer["value"]

    def ask(self, action: str, **more: Any) -> Any:
        """Have `drive.js` do something."""
        self._process.stdin.write(json.dumps({"do": action, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer(SECONDS)

    def script(self, text: str) -> Any:
        """Return what an expression comes to in the page."""
        return self.ask("script", text=text)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(self.script(f"document.querySelector({json.dumps(selector)}).textContent"))

    def wait(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait until something holds; fails with the page's text where it never does."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.script("document.body.innerText")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
