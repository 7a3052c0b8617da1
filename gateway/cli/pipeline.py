"""`sluicegate pipeline NAME`: a Spark pipeline in local mode, in place of this process.

A pipeline is a program of the package `pyspark_sluicegate.pipelines`; `spark-submit` runs the same
ones on a cluster. Here one gets a Java, Spark's settings for one machine, and all further options
as they are. It takes the process over, so its exit status and Ctrl-C are its own.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gateway.cli.errors import EX_UNAVAILABLE, EX_USAGE, CliError
from gateway.trial.java import NoJavaError, spark_environment
from gateway.trial.scratch import importing_environment

#: Name -> (module, what it does in a sentence, the packages that it needs beside pyspark).
PIPELINES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "archive": (
        "archive",
        "Carries streams of any number of gateways into one Delta table, exactly once.",
        ("deltalake", "obstore"),
    ),
    "rollup": (
        "rollup",
        "Counts and sums messages by window of time and sends the results on, exactly once.",
        (),
    ),
    "dead-letters": (
        "dead_letters",
        "Tells what died at a dead-letter address and why, and sends it back on demand.",
        (),
    ),
    "to-kafka": (
        "to_kafka",
        "Carries streams to Kafka by Spark's own sink: each message at least once.",
        (),
    ),
}
_PACKAGE: Final = "pyspark_sluicegate.pipelines"
SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


@click.group("pipeline", invoke_without_command=True)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark, as spark.driver.memory=4g or spark.jars.packages=...",
)
@click.pass_context
def pipeline(context: click.Context, *, master: str, conf: Sequence[str]) -> None:
    """Run a Spark pipeline on this machine.

    Options before NAME are Spark's, those behind it are the pipeline's: `sluicegate pipeline NAME
    --help` lists them. Ctrl-C ends a pipeline cleanly.
    """
    context.obj = submit_arguments(master, conf)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def submit_arguments(master: str, conf: Sequence[str]) -> str:
    """Return what PySpark hands to Spark's launcher. Raises CliError for a wrong setting."""
    settings = dict(SETTINGS)
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise CliError(
                "usage",
                f"--conf is {text!r}; it must be KEY=VALUE, and the key begin with 'spark.'",
                attempt="--conf spark.driver.memory=4g",
                status=EX_USAGE,
            )
        settings[key] = value
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return shlex.join(["--master", master, *given, "pyspark-shell"])


def missing(needed: Sequence[str]) -> list[str]:
    """Return the packages that are not installed."""
    return [name for name in needed if importlib.util.find_spec(name) is None]


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a pipeline."""
    return [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments]


def environment(submit: str) -> dict[str, str]:
    """Return the environment of a pipeline. Raises CliError where there is no Java."""
    try:
        found = spark_environment(importing_environment())
    except NoJavaError as error:
        raise CliError("no-java", str(error), status=EX_UNAVAILABLE) from error
    if importlib.util.find_spec("pyspark_sluicegate") is None:
        # A checkout that is not installed.
        folder = str(Path(__file__).resolve().parents[1] / "spark")
        found["PYTHONPATH"] = os.pathsep.join([found["PYTHONPATH"], folder])
    # What was set for Spark outside stands last, and wins.
    found[_ARGUMENTS] = " ".join(filter(None, [submit.rpartition(" ")[0], found.get(_ARGUMENTS)]))
    if not found[_ARGUMENTS].endswith("pyspark-shell"):
        found[_ARGUMENTS] += " pyspark-shell"
    return found


def _run(name: str, submit: str, arguments: Sequence[str]) -> None:
    module, _, needed = PIPELINES[name]
    lacking = missing(["pyspark", "pyarrow", *needed])
    if lacking:
        extras = "archive,spark" if set(lacking) & set(needed) else "spark"
        raise CliError(
            "missing-package",
            f"The pipeline {name} needs {', '.join(lacking)}, not installed here.",
            attempt=f"pip install 'sluicegate[{extras}]'",
            status=EX_UNAVAILABLE,
        )
    made = environment(submit)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(module, arguments), made)  # noqa: S606 - no shell is meant


def _command(name: str, sentence: str) -> click.Command:
    @click.command(
        name,
        help=sentence,
        short_help=sentence,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="OPTIONS...")
    @click.pass_obj
    def run(submit: str, arguments: tuple[str, ...]) -> None:
        _run(name, submit, arguments)

    return run


for _name, _facts in PIPELINES.items():
    pipeline.add_command(_command(_name, _facts[1]))
