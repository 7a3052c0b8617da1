"""Write docs/reference and the Spark tables from the code: `python -m tests.reference`."""

from __future__ import annotations

import sys

from tests.reference import spark_source
from tests.reference.pages import FOLDER, render

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        page = FOLDER / name
        current = page.exists() and page.read_text("utf-8") == text
        if not current:
            page.write_text(text, "utf-8")
        sys.stdout.write(f"{page}: {'is current' if current else 'written'}\n")
    spark = spark_source.PAGE
    spark.write_text(spark_source.render(spark.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{spark}: tables written\n")
