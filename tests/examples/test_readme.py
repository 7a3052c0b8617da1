"""The README's programs run as they are printed, but for the ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.scratch import ScratchGateway, importing_environment

README = Path(__file__).resolve().parents[2] / "README.md"


def program(word: str) -> str:
    """Return the one Python block of the README with `word` in it."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    return found


def run(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        env=importing_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.interop
def test_eight_lines_of_proton(gateway: ScratchGateway) -> None:
    text = program("BlockingConnection")
    assert run(text.replace(":5672", f":{gateway.port}")) == "b'three tea'\n"


@pytest.mark.interop
def test_eight_lines_of_stomp_py(gateway: ScratchGateway) -> None:
    text = program("Connection12")
    assert "three tea" in run(text.replace("61613", str(gateway.stomp_port)))
