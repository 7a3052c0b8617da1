"""How many objects users may have made and open, as the configuration says. Pure."""

from __future__ import annotations

from gateway.config.tree import Config
from gateway.model.objects import Kind, ObjectLimits


def object_limits(config: Config) -> ObjectLimits:
    """Return how many objects users may have made and open, as it is written."""
    return ObjectLimits(
        user={kind: getattr(config, f"user_max_{kind.value}") for kind in Kind},
        gateway={kind: getattr(config, f"global_max_{kind.value}") for kind in Kind},
        origins=config.origins,
    )
