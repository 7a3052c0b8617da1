"""Sluicegate: an AMQP 1.0 / STOMP gateway with one durable queue core and replayable streams."""

__version__ = "0.1.0"
