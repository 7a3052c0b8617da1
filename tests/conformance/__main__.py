"""Write docs/scenarios.md and docs/stomp-clauses.md, or say why they would not be true.

`python -m tests.conformance`; `--check` writes nothing. Exit status 1: a row or a clause has
neither a test nor a reason, or both, or, with `--check`, a page is not what would be written.
"""

from __future__ import annotations

import sys

from tests.conformance import stomp_page
from tests.conformance.page import PAGE, current, problems, render, write


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    scenarios, tests = current()
    clauses = stomp_page.current(tests)
    wrong = problems(scenarios, tests) + stomp_page.problems(clauses, tests)
    for one in wrong:
        sys.stderr.write(one + "\n")
    if wrong:
        return 1
    stale = False
    for page, text in (
        (PAGE, render(scenarios, tests)),
        (stomp_page.PAGE, stomp_page.render(clauses)),
    ):
        if "--check" in arguments:
            stale = stale or not page.exists() or page.read_text("utf-8") != text
        else:
            sys.stdout.write(f"{page}: {'written' if write(page, text) else 'is current'}\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
