"""What the configuration declares of addresses and queues, brought to what is stored."""

from __future__ import annotations

import structlog

from gateway.broker.conduct import check_lasting
from gateway.config.errors import ConfigError, Problem
from gateway.config.tree import AddressConfig, Config, QueueConfig
from gateway.core import Core
from gateway.model.address import RoutingType
from gateway.model.definitions import AddressDefinition
from gateway.model.errors import RefusedError

_log = structlog.get_logger()


def declare(core: Core, config: Config) -> None:
    """Make or change the addresses, queues and diverts that the configuration names.

    What it writes wins over what was changed while running; what it does not write stays. Raises
    ConfigError where it contradicts what is stored.
    """
    problems = []
    for address in config.addresses:
        _declare_address(core, address)
        for queue in address.queues:
            text = _declare_queue(core, address.name, queue)
            if text is not None:
                path = f"addresses.{address.name}"
                where = config.origins.get(path, "")
                problems.append(Problem(where=where, path=path, text=text))
    for divert in config.diverts:
        try:
            core.broker.branches.create(divert, configured=True)
        except RefusedError as error:
            path = f"diverts.{divert.name}"
            where = config.origins.get(path, "")
            problems.append(Problem(where=where, path=path, text=error.refusal.text))
    if problems:
        raise ConfigError(problems)


def _declare_address(core: Core, wanted: AddressConfig) -> None:
    directory = core.broker.directory
    address = core.broker.addresses.get(wanted.name)
    if address is None:
        directory.make_address(wanted.name, wanted.routing_types)
    elif not wanted.routing_types <= address.routing_types or address.auto_created:
        address.routing_types |= wanted.routing_types
        address.auto_created = False
        address.version += 1
        types = address.routing_types
        core.store.define(AddressDefinition(name=wanted.name, routing_types=types))
    else:
        return
    _log.info("address.configured", address=wanted.name)


def _declare_queue(core: Core, address: str, wanted: QueueConfig) -> str | None:
    """Make or change one queue; returns what contradicts the stored one."""
    directory = core.broker.directory
    routing = wanted.routing_type or RoutingType.ANYCAST
    queue = core.broker.queues.get(wanted.name)
    if queue is None:
        directory.create_queue(
            wanted.name,
            address,
            routing,
            durable=wanted.durable,
            ring_size=wanted.ring_size,
            max_consumers=wanted.max_consumers,
            selector=wanted.filter or "",
            attributes=wanted.attributes,
        )
        _log.info("address.configured", address=address, queue=wanted.name)
        return None
    if (queue.address, queue.routing, queue.durable) != (address, routing, wanted.durable):
        return (
            f"queue {wanted.name} is stored as {queue.routing.value} of address {queue.address},"
            f" {'durable' if queue.durable else 'not durable'}; delete it or change the file"
        )
    try:
        check_lasting(queue, wanted.attributes)
    except RefusedError as error:
        return error.refusal.text
    queue.auto_created = False
    ring = wanted.ring_size if wanted.ring_size != queue.ring_size else None
    most = wanted.max_consumers if wanted.max_consumers != queue.max_consumers else None
    selector = wanted.filter if wanted.filter != queue.filter_text else None
    more = {n: v for n, v in wanted.attributes.items() if getattr(queue.attributes, n) != v}
    if ring is not None or most is not None or selector is not None or more:
        directory.update_queue(
            wanted.name, ring_size=ring, max_consumers=most, selector=selector, attributes=more
        )
        _log.info("address.configured", address=address, queue=wanted.name)
    return None
