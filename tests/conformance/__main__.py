"""Write docs/scenarios.md, or say why it would not be true: `python -m tests.conformance`.

`--check` writes nothing. Exit status 1: a row has neither a test nor a reason, or both, or, with
`--check`, the page is not what would be written.
"""

from __future__ import annotations

import sys

from tests.conformance.page import PAGE, current, problems, render, write


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    scenarios, tests = current()
    wrong = problems(scenarios, tests)
    for one in wrong:
        sys.stderr.write(one + "\n")
    if wrong:
        return 1
    text = render(scenarios, tests)
    if "--check" in arguments:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != text)
    sys.stdout.write(f"{PAGE}: {'written' if write(PAGE, text) else 'is current'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
