"""Write docs/reference from the code: `python -m tests.reference`."""

from __future__ import annotations

import sys

from tests.reference.pages import FOLDER, render

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        page = FOLDER / name
        current = page.exists() and page.read_text("utf-8") == text
        if not current:
            page.write_text(text, "utf-8")
        sys.stdout.write(f"{page}: {'is current' if current else 'written'}\n")
