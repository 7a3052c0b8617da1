"""Found by Spark because of its name: `format("sluicegate")` works without a registration.

The packager puts this file at the top level of the wheel. Spark imports every module whose name
begins with `pyspark_`, and one that raises hides all data sources: so this one never raises. To
register by hand: `spark.dataSource.register(pyspark_sluicegate.DefaultSource)`.
"""

from __future__ import annotations

import logging

try:
    from gateway.spark.source import DefaultSource

    __all__ = ["DefaultSource"]
except ImportError as error:
    logging.getLogger("sluicegate.spark").warning(
        "format('sluicegate') is not available: it needs pyspark 4.2 or later and pyarrow (%s)",
        error,
    )
