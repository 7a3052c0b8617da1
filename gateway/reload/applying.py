"""What was read and found right, brought to everything that runs.

Users come first: who may come in is the one thing that must not lag behind. The rest follows in
bounded steps, each in a turn of its own, so that messages go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from gateway.broker import Limits
from gateway.broker.resettle import resettle
from gateway.config.diff import gone_diverts
from gateway.config.objects import object_limits
from gateway.config.tree import Acceptor, Config, management_acceptor
from gateway.core.core import Core, Reactor, set_up_store
from gateway.core.declared import make_declared
from gateway.core.retained import stream_settings
from gateway.core.sinking import sink_settings
from gateway.core.upkeep import disk_limit, keep_declared, periods
from gateway.listening.certificates import Certificates
from gateway.listening.connections import Connections, connection_limits
from gateway.listening.speakers import budget_of, make_speakers
from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal
from gateway.model.peers import Peer
from gateway.model.principal import By
from gateway.quotas.meters import Meters
from gateway.reload import staying
from gateway.reload.reading import Wanted
from gateway.security.gate import PasswordGate
from gateway.security.permits import Permits
from gateway.security.refusals import use_permissions
from gateway.security.users import Users
from gateway.tokens.issuing import Issuers, Issuing
from protocols.amqp.containers import Containers
from protocols.transport.shell import Wire

#: Keys of which each is one more reason to set the store up again.
_STORE: Final = (
    "store_task_limit",
    "store_linger",
    "store_lag_limit",
    "journal_compact_min_files",
    "journal_compact_percentage",
)
_NO_ISSUER: Final = (
    "The issuer of this connection's token is none that this gateway believes any more."
)
#: Connections of one step that are looked at.
_WIRES_STEP: Final = 256


class Running(Protocol):
    """The gateway, as far as a reload changes it."""

    config: Config
    gate: PasswordGate
    permits: Permits
    groups: Sequence[Connections]
    web: Connections
    budgets: dict[str, Budget]
    certificates: dict[str, Certificates]
    containers: Containers
    tokens: Issuing
    meters: Meters

    def serve(self, config: Config) -> None:
        """Bring what it says of the management API into force."""

    def pace(self, key: str, seconds: float) -> None:
        """Do what that key says how often at another distance."""


def doors(running: Running, config: Config) -> Iterator[tuple[Connections, Acceptor]]:
    """Yield the connections of each listener with the settings they are held to."""
    yield from zip(running.groups, config.acceptors, strict=True)
    yield running.web, management_acceptor(config)


async def apply(
    running: Running,
    core: Core,
    wanted: Wanted,
    *,
    reactor: Reactor,
    pause: Callable[[], Deferred[None]],
) -> int:
    """Bring all of it into force; returns how many connections were closed for their user."""
    old, new = running.config, wanted.held
    grants = core.broker.grants
    if _permissions(old) != _permissions(new):
        use_permissions(running.gate, running.permits, new.security_settings)
        grants.judge_all()
    running.permits.table = new.security_settings  # its lines may be others
    was_open = running.gate.open
    closed = await _change_issuers(running, wanted.issuers, new, pause)
    closed += await use_users(running, core, wanted.users, new, pause, was_open=was_open)
    while grants.judging:
        await pause()
    broker = core.broker
    broker.routing.duplicates.size = new.id_cache_size
    broker.directory.objects.limits = object_limits(new)
    running.meters.use(new.quotas)
    if _settings(old) == _settings(new):
        broker.directory.settings = new.address_settings  # its lines may be others
    else:
        limits = Limits(
            global_max_size=new.global_max_size, global_max_messages=new.global_max_messages
        )
        await _step(resettle(broker, new.address_settings, limits), pause)
    broker.branches.use_wildcards(new.wildcard_routing)
    await _step(make_declared(core, wanted.addresses, wanted.diverts), pause)
    broker.branches.unnamed = gone_diverts(new, wanted.read)
    keep_declared(broker, new)
    core.registry.use(stream_settings(new))
    for stream in new.streams:
        if stream not in old.streams:
            await core.registry.create(stream.name, stream.address)
    _use_store(reactor, core, old, new)
    running.serve(new)
    for certificates in running.certificates.values():
        certificates.look()
    broker.turn.need_end()  # what was defined goes to the disk, also where nobody sends
    for key, seconds in periods(new).items():
        if seconds != periods(old)[key]:
            running.pace(key, seconds)
    return closed


def _permissions(config: Config) -> tuple[object, ...]:
    """Return what decides who may do what."""
    entries = {entry.match: dict(entry.roles) for entry in config.security_settings.entries}
    return entries, config.literal_match_markers


def _settings(config: Config) -> tuple[object, ...]:
    """Return what decides over the settings of addresses, and over the gateway's limits."""
    entries = [(entry.match, dict(entry.values)) for entry in config.address_settings.entries]
    limits = config.global_max_size, config.global_max_messages
    return entries, config.literal_match_markers, limits, config.id_cache_size


async def _step(steps: Iterable[None], pause: Callable[[], Deferred[None]]) -> None:
    for _ in steps:
        await pause()


def _use_store(reactor: Reactor, core: Core, old: Config, new: Config) -> None:
    """Bring other limits of journal, disk and scrub into force."""
    if any(getattr(old, name) != getattr(new, name) for name in _STORE):
        set_up_store(reactor, core, new)
        core.broker.pressure.busy.look()
    if disk_limit(old) != disk_limit(new):
        core.disk.monitor.use(disk_limit(new))
        core.disk.scan()
    if old.sink != new.sink or old.origins != new.origins:
        core.sink.use(sink_settings(new))
    if (old.scrub_rate, old.scrub_period) != (new.scrub_rate, new.scrub_period):
        core.scrubber.pace(rate=new.scrub_rate, period=new.scrub_period / 1000)


# ---- who may come in


async def use_users(
    running: Running,
    core: Core,
    users: Users,
    new: Config,
    pause: Callable[[], Deferred[None]],
    *,
    was_open: bool = False,
) -> int:
    """Let in whom the users file names, by what acceptors say in `new`, and nobody else any more.

    `was_open`: anybody was let in before. Returns how many connections were closed for that.
    """
    gate = running.gate
    before, was_open = gate.users, was_open or gate.open
    gate.use(users)
    ruled = gate.certificates is not None and gate.certificates.rules != new.certificate_users
    gate.use_rules(new.certificate_users)
    for group, acceptor in doors(running, new):
        budget = running.budgets[acceptor.name]
        budget.maximum = budget_of(new, acceptor).maximum
        group.limits = connection_limits(new, acceptor)
        group.bound_output(new, acceptor)
        group.speakers = make_speakers(
            new,
            acceptor,
            core.broker,
            gate,
            budget,
            containers=running.containers,
            objects=core.broker.directory.objects,
            meters=running.meters,
        )
    if gate.open or not (was_open or ruled or before != users):
        return 0
    closed = looked = 0
    for group, acceptor in doors(running, new):
        for wire in list(group.wires.values()):
            peer = None if wire.session is None else wire.session.seen
            if peer is None:
                # It has said nothing yet, and logs in by what holds now; but while the gateway was
                # open it was offered to come in without.
                why = staying.GONE if was_open else None
            elif peer.principal.by is By.CERTIFICATE:
                why = None if _is_certified(gate, wire, peer) else staying.GONE
            else:
                why = staying.why_to_end(
                    peer.principal,
                    before,
                    users,
                    was_open=was_open,
                    anonymous=acceptor.allow_anonymous,
                )
            if why is not None:
                closed += _dismiss(wire, peer, why)
            looked += 1
            if looked % _WIRES_STEP == 0:
                await pause()
    return closed


def use_issuers(gate: PasswordGate, issuing: Issuing, issuers: Issuers) -> None:
    """Believe these issuers, and have the gate ask about tokens where there are any."""
    issuing.use(issuers)
    gate.tokens = issuing.realm if issuers else None


async def _change_issuers(
    running: Running, issuers: Issuers, new: Config, pause: Callable[[], Deferred[None]]
) -> int:
    """Believe these issuers, and end what the tokens of those that have gone let in."""
    gone = running.tokens.realm.issuers - issuers.keys()
    use_issuers(running.gate, running.tokens, issuers)
    closed = looked = 0
    for group, _ in doors(running, new) if gone else ():
        for wire in list(group.wires.values()):
            peer = None if wire.session is None else wire.session.seen
            if peer is not None and peer.principal.by is By.TOKEN and peer.principal.issuer in gone:
                closed += _dismiss(wire, peer, _NO_ISSUER)
            looked += 1
            if looked % _WIRES_STEP == 0:
                await pause()
    return closed


def _is_certified(gate: PasswordGate, wire: Wire, peer: Peer | None) -> bool:
    """Whether the rules of now say of a connection's certificate what it was let in as."""
    shown, judges = wire.peer().certificate, gate.certificates
    if shown is None or judges is None or peer is None:
        return False
    return judges.is_of(shown, peer.state().user)


def _dismiss(wire: Wire, peer: Peer | None, why: str) -> int:
    """Close a connection, and say why in its protocol's words; returns how many that were."""
    if peer is None:
        wire.stop()
    elif peer.ending is not None:
        return 0  # it is leaving already
    else:
        peer.dismiss(Refusal(code=Code.NOT_AUTHORIZED, text=why))
    return 1
