"""The pages of docs/reference by their names."""

from __future__ import annotations

from pathlib import Path

from tests.reference import audit, commands, configuration, doctor, http_api

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_NOTE = "<!-- Written by `make reference` from the code. -->"
_INDEX = """\
- [configuration.md](configuration.md): every key of the configuration file.
- [commands.md](commands.md): every command with its arguments and options.
- [http.md](http.md): every call of the HTTP API.
- [audit.md](audit.md): every event of the audit trail.
- [doctor.md](doctor.md): every finding of `sluicegate doctor`, and what to do.

`make reference` writes these pages from the code, and a test fails when they differ from it.
[Operating a gateway](../operating.md) explains how the parts work together.
"""


def render() -> dict[str, str]:
    """Return file name -> text."""
    pages = {
        "README.md": ("Reference", _INDEX),
        "configuration.md": ("Configuration keys", configuration.render()),
        "commands.md": ("Commands", commands.render()),
        "doctor.md": ("Findings of the doctor", doctor.render()),
        "audit.md": ("Audit events", audit.render()),
        "http.md": ("HTTP API", http_api.render()),
    }
    return {name: f"# {title}\n\n{_NOTE}\n\n{text}" for name, (title, text) in pages.items()}
