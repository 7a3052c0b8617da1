"""The README's programs run as they are printed, but for the ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway, importing_environment
from gateway.trial.self_signed import self_signed

README = Path(__file__).resolve().parents[2] / "README.md"


def program(word: str) -> str:
    """Return the one Python block of the README with `word` in it."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    return found


def run(text: str, folder: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=200,
        env=importing_environment() | environment,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.interop
def test_eight_lines_of_proton(gateway: ScratchGateway) -> None:
    text = program('BlockingConnection("amqp:')
    assert run(text.replace(":5672", f":{gateway.port}")) == "b'three tea'\n"


@pytest.mark.interop
def test_the_same_over_tls(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    plain = 'connection = BlockingConnection("amqp://127.0.0.1:5672")\n'
    text = program('BlockingConnection("amqp:').replace(plain, program("SSLDomain"))
    assert "amqps" in text
    with ScratchGateway(tmp_path / "gateway", tls=pair) as secure:
        said = run(text.replace(":5671", f":{secure.port}"), tmp_path)
    assert said == "b'three tea'\n"


@pytest.mark.interop
def test_eight_lines_of_stomp_py(gateway: ScratchGateway) -> None:
    text = program("Connection12")
    assert "three tea" in run(text.replace("61613", str(gateway.stomp_port)))


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark_environment")
def test_the_query_goes_on_where_its_checkpoint_says(
    gateway: ScratchGateway, tmp_path: Path
) -> None:
    text = program("readStream").replace(":8161", f":{gateway.management_port}")
    # Until it has read what is there, and not for ever.
    once = text.replace(".start()", ".trigger(availableNow=True).start()")
    assert once != text
    assert gateway.request("POST", "/api/v1/streams", {"name": "o", "address": "orders"})[0] < 300
    url = f"amqp://127.0.0.1:{gateway.port}"
    for total, count in ((3, 3), (5, 2)):
        send = "from gateway.cli.main import main; main()"
        sent = ["send", "orders", "tea", "--content-type", "text/tea", "--count", str(count)]
        subprocess.run(
            [sys.executable, "-c", send, *sent, "--url", url],
            env=importing_environment(),
            timeout=60,
            check=True,
        )
        # Few groups on one machine: not 200 tasks a step.
        few = "--conf spark.sql.shuffle.partitions=2 pyspark-shell"
        shown = run(once, tmp_path, PYSPARK_SUBMIT_ARGS=few)
        assert re.findall(r"text/tea\s*\|\s*(\d+)", shown) == [str(total)], shown
    assert (tmp_path / "orders-checkpoint").is_dir()
