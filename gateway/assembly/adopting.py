"""An empty gateway takes over the history of its name, in a process of its own.

The libraries that read a table bring threads of their own, which do not belong beside a reactor. So
the command does it that an operator has for the same end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from gateway.config.tree import Config
from storage.errors import StorageError

#: A store that does not answer is given up by the command itself before that.
_SECONDS: Final = 180

_log = structlog.get_logger()


class NoHistoryError(StorageError):
    """The table that is to be taken over cannot be read."""


def adopt_history(config: Config) -> None:
    """Make the streams of an empty data directory from the table of its configuration.

    Blocks. Nothing is done without a table, and where there are streams already. Raises
    NoHistoryError: a start without the history would give its offsets to other messages.
    """
    where = config.archive
    if not where.table or (Path(config.data_directory) / "streams" / "streams.json").exists():
        return
    said = {"name": config.name, "archive.table": where.table}
    said |= {"archive.endpoint": where.endpoint, "archive.region": where.region}
    texts = [f"{key}={json.dumps(value)}" for key, value in said.items() if value]
    sets = [part for text in texts for part in ("--set", text)]
    command = [sys.executable, "-m", "gateway", "archive", "adopt", "--json", *sets]
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(  # noqa: S603 - this very program
            [*command, "--data", config.data_directory],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHistoryError(_words(where.table, str(error))) from None
    if done.returncode:
        raise NoHistoryError(_words(where.table, done.stderr.strip()[-600:]))
    _log.info("streams.adopted", table=where.table, streams=done.stdout.strip()[:2000])


def _words(table: str, why: str) -> str:
    return (
        f"The history in {table} cannot be taken over, and without it offsets would begin anew: "
        f"{why}. Mend that, or take archive.table out of the configuration to begin anew."
    )
