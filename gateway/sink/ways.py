"""Whether a batch can be sent where its rows are to go, asked before any of it is published.

The addresses are made where they may be. One that refuses what is too much is asked whether it has
room for all of the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gateway.broker import Gateway
from gateway.broker.pressure.demand import Demand, joined, no_room
from gateway.model.errors import RefusedError
from gateway.model.principal import Principal
from gateway.sink.form import Form
from gateway.sink.ports import Files, RunBlocking
from gateway.sink.publication import Routes
from gateway.sink.reading import form_of, judge_file
from gateway.sink.staging import Stage


async def check_ways(
    stages: Sequence[Stage],
    broker: Gateway,
    files: Files,
    blocking: RunBlocking,
    *,
    message_max: int,
    principal: Principal | None,
) -> None:
    """Look whether the rows of all stages of a batch can be sent. Raises RefusedError."""
    wanted: defaultdict[str, list[Demand]] = defaultdict(list)
    forms: dict[str, Form] = {}
    routes = Routes(broker, _nothing, principal)
    try:
        for stage in stages:
            if stage.addresses is None:
                judged = await blocking.run(judge_file, files, stage.file, message_max)
                stage.addresses = judged.addresses
            form = await blocking.run(form_of, files, stage.file, message_max)
            for address, demand in stage.addresses.items():
                try:
                    routes.to(address, form)
                except RefusedError as error:
                    refusal = error.refusal
                    where = f"Row {demand.first} of partition {stage.key.partition}: "
                    raise RefusedError.of(refusal.code, where + refusal.text) from None
                wanted[address].append(demand)
                forms[address] = form
        for address, demands in wanted.items():
            _check_room(broker, routes, address, forms[address], joined(demands))
    finally:
        routes.close()


def _check_room(broker: Gateway, routes: Routes, address: str, form: Form, demand: Demand) -> None:
    """Raise RefusedError where an address that refuses has no room for all of a batch."""
    route = routes.to(address, form)
    if route.resolve() is not None or route.target.branched or route.is_picky:
        return  # how much of it stays there is not known
    usage = broker.pressure.load.usage(route.target)
    refusal = no_room(route.target, route.targets(), usage, demand)
    if refusal is not None:
        raise RefusedError(refusal)


def _nothing() -> None:
    """Stand for whoever does not want to know of room."""
