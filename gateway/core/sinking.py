"""What the configuration says of the sink, as the sink takes it. Pure."""

from __future__ import annotations

from dataclasses import fields

from gateway.config.tree import Config
from gateway.sink.settings import SinkSettings


def sink_settings(config: Config) -> SinkSettings:
    """Return the bounds of the sink as they are written."""
    said = {field.name: getattr(config.sink, field.name) for field in fields(config.sink)}
    return SinkSettings(**said, origins=config.origins)
