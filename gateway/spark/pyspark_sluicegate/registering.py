"""The format made known to a Spark session, also where the package came by `--py-files`.

Spark hands files of `--py-files` to the tasks. The process on the driver that plans a streaming
query gets them not (seen in 4.3): it finds a module by its environment only. So the session's
environment is given the folder or the zip that this process has the package from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pyspark.sql.utils import is_remote

from pyspark_sluicegate.source import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_PATH: Final = "PYTHONPATH"


def register(spark: SparkSession, source: type[DataSource] = DefaultSource) -> None:
    """Make `format("sluicegate")` known to a session; once more does no harm.

    `source` is another format of this package instead, as the pipelines have them.
    """
    if not is_remote():
        environment = spark.sparkContext.environment
        known = [path for path in environment.get(_PATH, "").split(os.pathsep) if path]
        origin = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
        if origin not in known:
            environment[_PATH] = os.pathsep.join([*known, origin])
    spark.dataSource.register(source)
