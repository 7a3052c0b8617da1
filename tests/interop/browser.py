"""Find a Chromium: `python -m tests.interop.browser` prints its path, or why there is none.

It is what SLUICEGATE_CHROMIUM names, else what the PATH has. Standard library only: the environment
script asks here before anything is installed. Exit status 1 says that there is none.
"""

from __future__ import annotations

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "SLUICEGATE_CHROMIUM"


class NoBrowserError(Exception):
    """There is no Chromium; the text says how to get one."""


def find_browser() -> str:
    """Return the path of a Chromium; raises NoBrowserError."""
    named = os.environ.get(VARIABLE)
    for name in [named] if named else NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    where = f"{VARIABLE} names {named}, which is no program" if named else "none is on the PATH"
    raise NoBrowserError(
        f"The tests in a browser need Chromium, and {where} (Debian: apt-get install chromium; "
        f"or set {VARIABLE}=/path/to/chromium)."
    )


def has_browser() -> bool:
    """Whether there is one."""
    try:
        find_browser()
    except NoBrowserError:
        return False
    return True


def main() -> int:
    try:
        sys.stdout.write(f"{find_browser()}\n")
    except NoBrowserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
