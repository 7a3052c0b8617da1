"""What a route does where a limit is near: it asks for each message, and stores, drops or refuses.

    full disk          refused or dropped, each message by its own flags
    pages              what does not fit goes to pages
    without credit     stored up to the message that reaches a limit; the sender keeps the others
    BLOCK              stored: it came on credit that was given before
    DROP, FAIL         judged one by one, up to the first that fails

A route far from all limits never comes here.
"""

from __future__ import annotations

from gateway.addresses.settings import FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.pressure.admission import Admission, admit_always, judge
from gateway.broker.routing.shared import Shared
from gateway.broker.routing.way import Way
from gateway.model.run import TAKEN, MixedRun, Outcome, Run


def send_at_full_disk(shared: Shared, route: Way, run: Run | MixedRun) -> Outcome:
    """Refuse or drop what a client sends while the disk is full, each message by its own flags."""
    settings = route.target.settings
    for index, flags in enumerate(run.flags_each()):
        refusal = shared.disk.refuses(settings, flags)
        if refusal is not None:
            return route.refuse(refusal, run.count - index, index)
        _drop(shared, route.target, 1)
    return TAKEN


def _drop(shared: Shared, address: Address, count: int) -> None:
    refusal = shared.disk.refusal
    assert refusal is not None, "dropped though the disk has room"
    address.dropped += count
    shared.load.refuse(refusal, count)


def send_guarded(shared: Shared, route: Way, run: Run | MixedRun, *, is_owned: bool) -> Outcome:
    """Ask admission for each message where it may say no; `is_owned`: a client sends it."""
    address = route.target
    settings = address.settings
    if address.uses_pages:
        return _send_paging(shared, route, run)
    if not route.credited and address.holds:
        return _send_while_room(shared, route, run)
    # The gateway's own sends are not what a reject threshold is for.
    takes_all = settings.rejects_above < 0 or not is_owned
    if admit_always(settings.address_full_policy) and takes_all:
        # It came on credit that was given before; what is not given is more of it.
        ticket = 0
        for one in run.runs():
            ticket = max(ticket, route.store_run(one))
        shared.room.watch(address)
        return Outcome(ticket)
    return _send_judged(shared, route, run)


def _send_judged(shared: Shared, route: Way, run: Run | MixedRun) -> Outcome:
    """Ask admission for each message, up to the first that fails."""
    address, ticket = route.target, 0
    for index, one in enumerate(run.singles()):
        usage = shared.load.usage(address)
        decision, refusal = judge(address.name, usage, address.settings, one.flags)
        match decision:
            case Admission.STORE | Admission.BLOCK | Admission.PAGE:
                ticket = max(ticket, route.store_run(one))
            case Admission.DROP:
                assert refusal is not None, "dropped for no reason"
                address.dropped += 1
                shared.load.refuse(refusal, 1)
            case Admission.FAIL:
                assert refusal is not None, "refused for no reason"
                shared.room.watch(address)
                return route.refuse(refusal, run.count - index, index, ticket)
    shared.room.watch(address)
    return Outcome(ticket)


def _send_while_room(shared: Shared, route: Way, run: Run | MixedRun) -> Outcome:
    """Store what comes without credit up to the message that reaches a limit.

    Nothing is refused for good: its sender keeps the others until there is room.
    """
    address, ticket = route.target, 0
    for index, one in enumerate(run.singles()):
        shared.room.watch(address)
        if address.blocked is not None:
            return Outcome(ticket, address.blocked, index)
        ticket = max(ticket, route.store_run(one))
    shared.room.watch(address)
    return Outcome(ticket)


def _send_paging(
    shared: Shared, route: Way, run: Run | MixedRun, *, admitted: bool = False
) -> Outcome:
    """Store up to the message that reaches a limit, and send the others to pages."""
    outcome = shared.pages.send(route, run, admitted=admitted)
    shared.room.watch(route.target)
    if outcome.refusal is not None:
        shared.load.refuse(outcome.refusal, run.count - outcome.taken)
    return outcome


def send_admitted(shared: Shared, route: Way, run: Run, *, is_owned: bool) -> int:
    """Send what was admitted as a whole before, to one address; returns the ticket."""
    address, disk = route.target, shared.disk
    if disk.refusal is not None and disk.refuses(address.settings, run.flags) is None:
        _drop(shared, address, run.count)
        return 0
    if address.uses_pages:
        return _send_paging(shared, route, run, admitted=True).ticket
    if address.settings.address_full_policy is FullPolicy.DROP:
        return send_guarded(shared, route, run, is_owned=is_owned).ticket
    ticket = route.store_run(run)
    shared.room.watch(address)
    return ticket
