"""What the configuration declares of addresses and queues, brought to what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import structlog

from gateway.broker.directory.conduct import check, check_lasting
from gateway.config.errors import ConfigError, Problem
from gateway.config.tree import AddressConfig, Config, QueueConfig
from gateway.core.core import Core
from gateway.model.address import RoutingType
from gateway.model.definitions import AddressDefinition, DivertDefinition
from gateway.model.errors import RefusedError

#: Addresses and queues of one step, when they are made beside other work: some milliseconds.
STEP: Final = 8

_log = structlog.get_logger()


def declare(core: Core, config: Config) -> None:
    """Make or change the addresses, queues and diverts that the configuration names.

    What it writes wins over what was changed while running; what it does not write stays. Raises
    ConfigError where it contradicts what is stored, and changes nothing then.
    """
    found = contradictions(core, config, config.addresses, config.diverts)
    problems = [problem for problem in found if problem is not None]
    if problems:
        raise ConfigError(problems)
    for _ in make_declared(core, config.addresses, config.diverts):
        pass


def contradictions(
    core: Core,
    config: Config,
    addresses: Sequence[AddressConfig],
    diverts: Sequence[DivertDefinition],
) -> Iterator[Problem | None]:
    """Go through what of these the core would refuse, as it is now, and nothing else would.

    None for each thing that is right, so that others may have a turn between.
    """
    for address in addresses:
        for queue in address.queues:
            text = _queue_problem(core, address.name, queue)
            yield None if text is None else _problem(config, f"addresses.{address.name}", text)
    declared = {queue.name: a.name for a in config.addresses for queue in a.queues}
    for divert in diverts:
        text = _divert_problem(core, divert, declared)
        yield None if text is None else _problem(config, f"diverts.{divert.name}", text)


def _problem(config: Config, path: str, text: str) -> Problem:
    return Problem(where=config.origins.get(path, ""), path=path, text=text)


def make_declared(
    core: Core, addresses: Sequence[AddressConfig], diverts: Sequence[DivertDefinition]
) -> Iterator[None]:
    """Make or change these; a step is a few of them.

    What a client has made a contradiction of since it was looked at stays as it is, and is told.
    """
    count = 0
    for address in addresses:
        _declare_address(core, address)
        for queue in address.queues:
            text = _queue_problem(core, address.name, queue)
            if text is None:
                _declare_queue(core, address.name, queue)
            else:
                _log.error("config.contradicted", key=f"addresses.{address.name}", error=text)
            count += 1
            if count % STEP == 0:
                yield
        count += 1
        if count % STEP == 0:
            yield
    for divert in diverts:
        try:
            core.broker.branches.create(divert, configured=True)
        except RefusedError as error:
            _log.error(
                "config.contradicted", key=f"diverts.{divert.name}", error=error.refusal.text
            )
        yield


def _declare_address(core: Core, wanted: AddressConfig) -> None:
    directory = core.broker.directory
    address = core.broker.addresses.get(wanted.name)
    if address is None:
        directory.make_address(wanted.name, wanted.routing_types)
    elif not wanted.routing_types <= address.routing_types or address.auto_created:
        address.routing_types |= wanted.routing_types
        directory.keep(address)
        address.version += 1
        types = address.routing_types
        core.store.define(AddressDefinition(name=wanted.name, routing_types=types))
    else:
        return
    _log.info("address.configured", address=wanted.name)


def _divert_problem(
    core: Core, divert: DivertDefinition, declared: Mapping[str, str]
) -> str | None:
    """Say why a divert cannot be; `declared`: queues of the configuration, and their addresses."""
    try:
        made = core.broker.branches.check(divert, configured=True)
    except RefusedError as error:
        return error.refusal.text
    address = declared.get(divert.name)
    if address is not None and made.concerns(address):
        return f"queue {divert.name} is on address {address}; give the divert another name"
    return None


def _queue_problem(core: Core, address: str, wanted: QueueConfig) -> str | None:
    """Say what contradicts the stored queue, or what no queue can have; None: nothing."""
    routing = wanted.routing_type or RoutingType.ANYCAST
    queue = core.broker.queues.get(wanted.name)
    if queue is not None and (queue.address, queue.routing, queue.durable) != (
        address,
        routing,
        wanted.durable,
    ):
        return (
            f"queue {wanted.name} is stored as {queue.routing.value} of address {queue.address},"
            f" {'durable' if queue.durable else 'not durable'}; delete it or change the file"
        )
    try:
        check(wanted.ring_size, wanted.max_consumers, wanted.attributes)
        if queue is not None:
            check_lasting(queue, wanted.attributes)
    except RefusedError as error:
        return error.refusal.text
    return None


def _declare_queue(core: Core, address: str, wanted: QueueConfig) -> None:
    """Make or change one queue that contradicts nothing."""
    directory = core.broker.directory
    queue = core.broker.queues.get(wanted.name)
    if queue is None:
        core.broker.administration.create_queue(
            wanted.name,
            address,
            wanted.routing_type or RoutingType.ANYCAST,
            durable=wanted.durable,
            ring_size=wanted.ring_size,
            max_consumers=wanted.max_consumers,
            selector=wanted.filter or "",
            attributes=wanted.attributes,
        )
        _log.info("address.configured", address=address, queue=wanted.name)
        return
    directory.keep(queue)
    ring = wanted.ring_size if wanted.ring_size != queue.ring_size else None
    most = wanted.max_consumers if wanted.max_consumers != queue.max_consumers else None
    selector = wanted.filter if wanted.filter != queue.filter_text else None
    more = {n: v for n, v in wanted.attributes.items() if getattr(queue.attributes, n) != v}
    if ring is not None or most is not None or selector is not None or more:
        core.broker.administration.update_queue(
            wanted.name, ring_size=ring, max_consumers=most, selector=selector, attributes=more
        )
        _log.info("address.configured", address=address, queue=wanted.name)
