"""Which permissions what a client asks for needs. None stands for the gateway, which may do all.

A queue that is made on demand needs the permission for its kind at its address, and the address
`create-address` where it is made, or served in another way than before. What goes by itself (an
unused queue, what is temporary) needs none. Each function raises RefusedError (not-authorized).
"""

from __future__ import annotations

from gateway.broker.directory.address import Address
from gateway.model.address import RoutingType
from gateway.model.principal import Permission, Principal
from gateway.queues.queue import Queue


def check_send(principal: Principal | None, address: str, queue: str | None) -> None:
    """Whether messages may be sent to an address, or to one queue of it."""
    if principal is not None:
        principal.check(Permission.SEND, address, queue)


def reading(*, browse: bool) -> Permission:
    """Return what is needed to take messages, or to look at them."""
    return Permission.BROWSE if browse else Permission.CONSUME


def check_read(
    principal: Principal | None, address: str, queue: str | None, *, browse: bool
) -> None:
    """Whether messages of a queue of an address may be taken, or looked at."""
    if principal is not None:
        principal.check(reading(browse=browse), address, queue)


def check_create(
    principal: Principal | None,
    name: str,
    address: Address | None,
    *,
    kind: RoutingType | None,
    queue: str | None = None,
    durable: bool = True,
) -> None:
    """Whether what is missing may be made: a queue by this name, and the address or its kind.

    `address` is None where it has to be made; without a `queue` none is made.
    """
    if principal is None:
        return
    if queue is not None:
        made = Permission.CREATE_DURABLE_QUEUE if durable else Permission.CREATE_NON_DURABLE_QUEUE
        principal.check(made, name, queue)
    if address is None or (kind is not None and kind not in address.routing_types):
        principal.check(Permission.CREATE_ADDRESS, name, queue)


def check_delete(principal: Principal | None, queue: Queue) -> None:
    """Whether a queue may be deleted."""
    if principal is not None:
        durable = Permission.DELETE_DURABLE_QUEUE
        gone = durable if queue.durable else Permission.DELETE_NON_DURABLE_QUEUE
        principal.check(gone, queue.address, queue.name)
