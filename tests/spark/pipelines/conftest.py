"""One Spark for all tests of the pipelines that need one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.session import spark_session


@pytest.fixture(scope="package")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    """Spark as `running.run` has it, under which the programs run in this process."""
    settings = {"spark_ui_showConsoleProgress": "false", "spark_sql_session_timeZone": "UTC"}
    with spark_session("sluicegate-pipelines", **settings) as session:
        yield session
