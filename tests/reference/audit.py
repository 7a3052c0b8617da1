"""Every event of the audit trail, from its catalogue."""

from __future__ import annotations

from gateway.audit.events import EVENTS, PERSONAL, WHOLE
from tests.reference.tables import sentence, table


def render() -> str:
    """Return the page below its title."""
    rows = [
        [f"`{name}`", sentence(meaning), str(WHOLE.get(name, "each"))]
        for name, meaning in EVENTS.items()
    ]
    left_out = ", ".join(f"`{name}`" for name in sorted(PERSONAL))
    return (
        "Each line of the [audit trail](../security.md#audit) is a JSON object with `seq`, `prev`,"
        " `time`, `event`, the facts of its event, and `hash`.\n\n"
        + table(["event", "meaning", "told whole in a minute"], rows)
        + "\nMore of an event than the last column says are summed up in `audit.summed`. With"
        f" `personal-data = false` these facts are left out: {left_out}.\n"
    )
