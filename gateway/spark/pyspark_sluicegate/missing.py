"""Says in the log why Spark does not find the data source."""

import logging


def tell(error: ImportError) -> None:
    """Log what is missing; `error` names it."""
    logging.getLogger("pyspark_sluicegate").warning(
        "format('sluicegate') is not available: it needs pyspark 4.2 or later and pyarrow (%s)",
        error,
    )
