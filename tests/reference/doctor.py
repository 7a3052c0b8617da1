"""Every finding of `sluicegate doctor`, from its catalogue; a code is its anchor."""

from __future__ import annotations

from gateway.doctor.findings import KINDS
from tests.reference.tables import sentence


def render() -> str:
    """Return the page below its title."""
    parts = [
        (
            "`sluicegate doctor` looks at the configuration, its files and the running gateway, and"
            " changes nothing. Its exit status is 1 where something is unsafe, and with `--strict`"
            " also where there is a warning.\n"
        )
    ]
    parts += [
        f"## {code}\n\n**{kind.severity.value}.** {sentence(kind.why)}\n\n"
        f"What to do: {sentence(kind.remedy)}\n"
        for code, kind in KINDS.items()
    ]
    return "\n".join(parts)
