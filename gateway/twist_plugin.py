"""The plugin behind `twist sluicegate`; twisted/plugins/sluicegate_plugin.py of the wheel.

Twisted imports every plugin to list them, so this one must stay light: the service's module is
only named here, and imported when it is chosen.
"""

from __future__ import annotations

from twisted.application.service import ServiceMaker

sluicegate = ServiceMaker(
    "Sluicegate",
    "gateway.assembly.service",
    "An AMQP 1.0 and STOMP message gateway that Spark can read.",
    "sluicegate",
)
