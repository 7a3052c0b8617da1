"""One Spark in local mode for a module of tests, which finds the source by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.spark.support import ROOT

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
#: Spark gives a Python worker ten seconds to start, whatever the machine has to do besides.
STARVED = "Python worker failed to connect back"
#: So often a query is started anew from its checkpoint when its worker was starved.
STARTS = 5


def run_to_its_end(start: Callable[[], Any], seconds: float) -> Any:
    """Start a query and wait for its end; again from its checkpoint when no worker could start.

    Returns the query; raises what it died of.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(STARTS):
        query = start()
        try:
            assert query.awaitTermination(seconds)
        except StreamingQueryException as error:
            if STARVED not in str(error):
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError(f"{STARTS} times {STARVED}")


@contextmanager
def spark_session(name: str, **settings: str) -> Iterator[Any]:
    """Start Spark; `settings` have `_` for `.` in their names. Needs `spark_environment` first."""
    from pyspark.sql import SparkSession

    # Found by name, in a checkout that may not be installed.
    paths = [str(ROOT), str(ROOT / "gateway" / "spark")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**SETTINGS, **settings}.items():
        builder = builder.config(key.replace("_", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
