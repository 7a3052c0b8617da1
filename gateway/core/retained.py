"""What the configuration says of streams, as the streams take it. Pure."""

from __future__ import annotations

from gateway.config.streams import Retain, StreamConfig
from gateway.config.tree import Config
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings


def stream_settings(config: Config) -> StreamSettings:
    """Return the limits of all streams, and of those that have limits of their own."""
    return StreamSettings(
        retention=_limits(config, None),
        named={one.name: _limits(config, one) for one in config.streams},
    )


def _limits(config: Config, one: StreamConfig | None) -> Limits:
    retain, local = config.stream_retain, config.stream_local_bytes
    most = config.stream_retention_bytes
    if one is not None:
        retain = one.retain or retain
        local = local if one.local_bytes is None else one.local_bytes
        most = most if one.retention_bytes is None else one.retention_bytes
    return Limits(bytes_max=most, local_bytes=local if retain is Retain.ARCHIVED else 0)
