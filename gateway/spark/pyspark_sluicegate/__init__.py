"""The data source `sluicegate` for PySpark: standard library, pyarrow and pyspark only.

Spark imports every top-level module whose name begins with `pyspark_` and takes `DefaultSource`
from it, so `format("sluicegate")` works without a registration. One module that raises meanwhile
hides all data sources: so this one never raises. `pyspark_sluicegate.register(spark)` does it by
hand, and is what a program needs that got the package by `--py-files`.

Layout: `options` (what users write), `client` (HTTP with retries), `offsets` (checkpoint text,
ranges cut into tasks), `rows` (a range read and checked), `pushdown` (conditions of a batch query),
`source` (the classes Spark calls), `progress` (the lag of a query).
"""

__version__ = "0.1.0"

try:
    from pyspark_sluicegate.registering import register
    from pyspark_sluicegate.source import DefaultSource

    __all__ = ["DefaultSource", "__version__", "register"]
except ImportError as error:
    from pyspark_sluicegate.missing import tell

    tell(error)
