"""Waiting for the journal before an answer says that something is done."""

from __future__ import annotations

from gateway.broker import Gateway
from gateway.model.errors import RefusedError
from gateway.sink.durable import when_durable

__all__ = ["check_store", "when_durable"]


def check_store(gateway: Gateway) -> None:
    """Raise RefusedError (store-failed) when nothing can become durable any more."""
    if gateway.failure is not None:
        raise RefusedError(gateway.failure)
