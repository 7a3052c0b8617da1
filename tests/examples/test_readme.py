"""The programs of the README, docs/tls.md and docs/streams.md run as printed, but for the ports.

The README stays short, and names every command.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gateway.cli.main import cli
from gateway.trial.scratch import ScratchGateway, importing_environment
from gateway.trial.self_signed import self_signed

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, ROOT / "docs" / "tls.md")
STREAMS = (ROOT / "docs" / "streams.md",)


def program(word: str, pages: tuple[Path, ...] = PAGES) -> str:
    """Return the one Python block of these pages with `word` in it."""
    text = "\n".join(page.read_text("utf-8") for page in pages)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
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


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) < 150


def test_the_readme_names_every_command() -> None:
    _, _, table = README.read_text("utf-8").partition("| command |")
    rows = [row.split("|") for row in table.partition("\n\n")[0].splitlines()[2:]]
    assert [row[1].strip(" `") for row in rows] == cli.list_commands(click.Context(cli))
    assert [row[1] for row in rows if not row[2].strip()] == []


def test_every_page_is_reached_from_the_readme_and_every_link_leads_somewhere() -> None:
    reached: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            target = (page.parent / link).resolve()
            assert target.exists(), f"{page.name}: {link}"
            if target.suffix == ".md":
                waiting.append(target)
    assert {*(ROOT / "docs").rglob("*.md")} <= reached


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


@pytest.mark.interop
def test_a_stream_is_replayed(gateway: ScratchGateway) -> None:
    made = {"name": "orders", "address": "orders"}
    assert gateway.request("POST", "/api/v1/streams", made)[0] == 201
    text = program("stream-offset-spec", STREAMS).replace(":5672", f":{gateway.port}")
    assert run(text) == "cake\n"
    text = program("Connection12", STREAMS).replace("61613", str(gateway.stomp_port))
    assert run(text) == "1 coffee\n2 cake\n"


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
