"""`sluicegate pipeline`: its list, what Spark is told, what is missing, and one that runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner
from proton import Message
from proton.utils import BlockingConnection

from gateway.cli import pipeline as module
from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.cli.main import cli
from gateway.cli.pipeline import PIPELINES, SETTINGS, command, environment, submit_arguments
from gateway.trial.scratch import HOST, ScratchGateway, importing_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PIPELINES)
def test_each_pipeline_is_a_program_that_says_the_same_of_itself(name: str) -> None:
    place, sentence, needed = PIPELINES[name]
    for package in needed:
        pytest.importorskip(package)
    program = importlib.import_module(f"pyspark_sluicegate.pipelines.{place}")
    parser = program.make_parser()
    assert parser.prog == name
    assert parser.description.strip() == sentence
    assert callable(program.main)


def test_without_a_name_they_are_listed_each_with_its_whole_sentence() -> None:
    shown = CliRunner().invoke(cli, ["pipeline"])
    assert shown.exit_code == 0
    text = " ".join(shown.output.split())
    for name, (_, sentence, _) in PIPELINES.items():
        assert f"{name} {sentence}" in text


def test_what_spark_is_told_comes_last_from_whom_knows_best(monkeypatch: Any) -> None:
    parts = shlex.split(submit_arguments("local[2]", ["spark.ui.enabled=true", "spark.a=b c=d"]))
    assert parts[:2] == ["--master", "local[2]"]
    assert parts[-1] == "pyspark-shell"
    assert "spark.ui.enabled=true" in parts
    assert "spark.ui.enabled=false" not in parts
    assert "spark.a=b c=d" in parts
    assert {key.partition("=")[0] for key in parts if key.startswith("spark.")} >= set(SETTINGS)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.a=outside pyspark-shell")
    told = environment(submit_arguments("local", []))["PYSPARK_SUBMIT_ARGS"].split()
    assert told.index("spark.a=outside") == len(told) - 2
    assert told.count("pyspark-shell") == 1


@pytest.mark.parametrize("text", ["spark.a", "driver.memory=4g", "=x"])
def test_a_setting_that_is_none_of_sparks(text: str) -> None:
    with pytest.raises(CliError, match="must be KEY=VALUE") as refused:
        submit_arguments("local", [text])
    assert refused.value.status == EX_USAGE


@pytest.mark.parametrize(
    ("lacking", "attempt"),
    [
        ({"pyspark"}, "pip install 'sluicegate[spark]'"),
        ({"deltalake"}, "pip install 'sluicegate[archive,spark]'"),
    ],
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    monkeypatch: Any, lacking: set[str], attempt: str
) -> None:
    monkeypatch.setattr(module, "missing", lambda needed: [n for n in needed if n in lacking])
    shown = CliRunner().invoke(cli, ["pipeline", "archive", "--url", "x"], standalone_mode=False)
    error = shown.exception
    assert isinstance(error, CliError)
    assert (error.status, error.attempt) == (EX_UNAVAILABLE, attempt)
    assert ", ".join(lacking) in error.message


def test_missing_looks_at_what_is_installed() -> None:
    assert module.missing(["click", "no_such_package_here"]) == ["no_such_package_here"]


def test_options_behind_the_name_are_the_programs() -> None:
    words = ["--help", "--json", "-x", "--", "a b"]
    assert command("rollup", words)[-5:] == words
    shown = subprocess.run(
        [sys.executable, "-m", "gateway", "pipeline", "rollup", "--nonsense"],
        capture_output=True, text=True, timeout=60, env=importing_environment(), check=False,
    )  # fmt: skip
    assert shown.returncode == EX_USAGE
    assert "try: rollup --help" in shown.stderr


def documented() -> list[tuple[str, list[str]]]:
    """Return the pipelines' names and options in the commands of docs/streams.md."""
    text = (ROOT / "docs" / "streams.md").read_text("utf-8").replace("\\\n", "")
    found = []
    for line in re.findall(r"^\$ (sluicegate pipeline .*)$", text, re.MULTILINE):
        words = shlex.split(line)
        place = next(i for i, word in enumerate(words) if word in PIPELINES)
        found.append((words[place], words[place + 1 :]))
    return found


def test_the_commands_of_the_page_are_the_programs() -> None:
    commands = documented()
    assert {name for name, _ in commands} == {"rollup", "dead-letters", "to-kafka"}
    for name, words in commands:
        program = importlib.import_module(f"pyspark_sluicegate.pipelines.{PIPELINES[name][0]}")
        given = program.make_parser().parse_args(words)
        if name == "to-kafka":
            assert program.kafka_options(given)
            continue
        job = program.RollupJob if name == "rollup" else program.DeadLetterJob
        job(None, given)  # refuses what does not go together


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_one_runs_until_ctrl_c_and_ends_cleanly(gateway: ScratchGateway, tmp_path: Path) -> None:
    gateway.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}")
    connection.create_sender("orders").send(Message(body='{"n": 1}', durable=True))
    connection.close()
    given = [
        "--url", gateway.url, "--address", "orders", "--sum", "body.n", "--to", "totals",
        "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "20 seconds", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "pipeline", "--master", "local[2]", "rollup", *given],
        stderr=subprocess.PIPE,
        text=True,
        env=importing_environment(),
        # Ctrl-C goes to all processes of a terminal, and to no others.
        start_new_session=True,
    )
    # Spark may say nothing for long; nobody waits for it for ever.
    limit = threading.Timer(200, process.kill)
    limit.start()
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if '"rows": 1' in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        lines += process.stderr.readlines()
        assert process.wait(60) == 0, "".join(lines)
    finally:
        limit.cancel()
        process.kill()
        process.wait()
    assert any('"rows": 1' in line for line in lines)
    # Spark's own daemon may find its pipe closed, and says so by a traceback of its own.
    frames = [line for line in lines if line.lstrip().startswith('File "')]
    assert all("/pyspark/" in line for line in frames), "".join(lines)
