"""One seed: clients of both protocols, a network that fails, a core on a disk that fails.

Under test are the real sessions of AMQP and STOMP, driven by the real shell over Twisted's own
transport, with all that the world of the core has below them. Clients see bytes and nothing else;
`ledger` judges what they were told.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.broker import Gateway
from gateway.listening.connections import Connections
from gateway.model.address import RoutingType
from gateway.model.budget import Budget
from gateway.model.errors import RefusedError
from gateway.model.message import Message
from gateway.queues.queue import Gone, Queue
from gateway.store.persistence import Restored
from protocols.amqp import connection as connection_module
from protocols.transport import outgoing, shell
from protocols.transport.timers import Timers
from protocols.transport.unread import Output
from tests.simulation.core.life import CALM_MAX, HeardEffects, Life
from tests.simulation.lives import replaced, run_to_its_end
from tests.simulation.model import ViolationError
from tests.simulation.wire import speakers
from tests.simulation.wire.amqp_client import AmqpClient
from tests.simulation.wire.client import Client
from tests.simulation.wire.ledger import DEAD, EXPIRED, Ledger
from tests.simulation.wire.net import Line, Reactor
from tests.simulation.wire.operations import OPERATIONS, WEB_OPERATIONS
from tests.simulation.wire.plan import Web, draw_store, draw_tls, draw_web, draw_wire
from tests.simulation.wire.secure import contexts
from tests.simulation.wire.stomp_client import StompClient
from tests.simulation.wire.websocket import WebSocket

TOPIC = "topic"
SUBSCRIPTIONS = ("s1", "s2")
#: Who says something every 2 s, and has it arrive within this, is never silent for too long.
LATE_MS = 2000


class WireWorld(Life):
    """See the module text. `run()` raises ViolationError, or whatever the gateway raised."""

    def __init__(self, seed: int | str, *, websocket: bool = False) -> None:
        """`websocket`: it is spoken in any case."""
        super().__init__("wire", seed, draw_store(random.Random(f"wire plan/{seed}")))
        self.wire = draw_wire(random.Random(f"wire net/{seed}"), sorted(OPERATIONS))
        self.wire.tls = draw_tls(random.Random(f"wire tls/{seed}"), self.wire)
        self.wire.web = draw_web(random.Random(f"wire web/{seed}"), self.wire, always=websocket)
        self.ledger = Ledger()
        self.ledger.delays = self.plan.redelivery_delay > 0
        self.serial = 0
        self.clients: list[Client] = []
        self._numbers = 0
        self.calming = False

    # ---- a start

    @contextmanager
    def tight(self) -> Iterator[None]:
        """As in Life; and what a connection may end of must not pass for a cut."""
        pressure = self.wire.pressure
        timed = shell.SMALL_BYTES if self.wire.web is None else 1
        with (
            super().tight(),
            replaced(
                [
                    # A connection counts as one that does not read as early as the plan says.
                    (outgoing, "PRESSURE_BYTES", pressure),
                    (connection_module, "OUT_BYTES_MAX", pressure),
                    (shell.log, "err", _tell),
                    (shell, "SMALL_BYTES", timed),
                ]
            ),
        ):
            yield

    def made(self, gateway: Gateway) -> None:
        self.unfinished = Budget(1 << 24)
        self.reactor = Reactor(self.clocks.reactor)
        timers = Timers(self.clocks.reactor)
        secure = (lambda: contexts().server) if self.wire.tls else None
        self.group = Connections("sim", gateway.turn, timers, self.reactor.reads, contexts=secure)
        self.group.speakers = speakers.plain(self, gateway)
        if (web := self.wire.web) is not None:
            self.group.speakers += (speakers.over_websocket(self, gateway, web),)
            self.group.output = Output(bytes_max=web.answers_max)
            self.reactor.reads.patience = speakers.patience(self, web)
        if self.plan.lag is not None:
            limit, calm = self.plan.lag
            clock = self.clocks.reactor
            gateway.pressure.lag.watch(limit, now=clock.seconds, later=clock.callLater, calm=calm)
        self._spy(gateway)

    def compare(self, found: Restored) -> None:
        """Judge what the new core holds before anything else happens to it."""
        self.evicted = None
        self.ledger.restart(self.holdings(), clean=found.clean)
        self.figures["clean"] += int(found.clean)
        for name in SUBSCRIPTIONS:
            if TOPIC in self.plan.addresses and name not in self.gateway.queues:
                self.gateway.administration.create_queue(name, TOPIC, RoutingType.MULTICAST)

    @property
    def latest(self) -> int:
        """Return the latest that broker time has been; it may have gone back since."""
        return max(self.now, self.clocks.highest)

    # ---- names

    def queues_of(self, address: str) -> tuple[str, ...]:
        """Return the queues of an address that clients send to."""
        return SUBSCRIPTIONS if address == TOPIC else (address,)

    def known_queues(self) -> list[str]:
        """Return the queues that clients subscribe to."""
        queues = [queue for address in self.plan.addresses for queue in self.queues_of(address)]
        return [*queues, *(n for n in (DEAD, EXPIRED) if n in self.gateway.queues)]

    def fqqn(self, queue: str) -> str:
        return f"{TOPIC}::{queue}" if queue in SUBSCRIPTIONS else queue

    def named(self, address: str, chance: random.Random, *, stomp: bool) -> str:
        """Return one of the ways in which a client may write an address."""
        if not stomp or chance.random() < 0.5:
            return address
        return f"/topic/{address}" if address == TOPIC else f"/queue/{address}"

    # ---- what the core says

    def _spy(self, gateway: Gateway) -> None:
        told, subscribe = gateway.operations.effects.gone, gateway.subscribe

        def gone(queue: Queue, messages: list[Message], why: Gone, size: int) -> int:
            target = {Gone.KILLED: DEAD, Gone.EXPIRED: EXPIRED}.get(why, "")
            for message in messages:
                now = max(self.now, self.clocks.turn_ms)
                copy = self.ledger.gone(
                    queue.name, message, why, now=now, attempts=queue.max_attempts
                )
                if target and target != queue.address:
                    self.ledger.move(copy, message, target)
                self.figures[why.value] += 1
                self.log(f"      {copy.send.serial} is {why.value} of {queue.name}")
            return told(queue, messages, why, size)

        def watched(*args: object, **more: object) -> object:
            return Watched(subscribe(*args, **more), self)  # type: ignore[arg-type]

        heard = HeardEffects(gateway.operations.effects, gone)
        gateway.directory.effects = heard  # type: ignore[assignment]
        gateway.subscribe = watched  # type: ignore[method-assign, assignment]

    def refused(self, client: Client, text: str) -> None:
        """A client was told off; nothing here asks for what may be refused for another reason."""
        known = ("full", "global-max", "stopping", "shutting", "simulated")
        late = (
            "No complete CONNECT",
            "Nothing was received",
            "is not complete after",
            "was not whole after",
        )
        if any(word in text for word in known):
            client.excused = True
        elif not (client.excused and any(word in text for word in late)):
            raise ViolationError(f"client {client.number} is told: {text}")

    # ---- the network

    def connect(self) -> Client:
        """Let a client come."""
        self._numbers += 1
        kind = AmqpClient if self.chance.random() < self.wire.amqp else StompClient
        client = kind(self, self._numbers)
        client.line = Line(self._numbers, client, self.wire.capacity, secure=self.wire.tls)
        self.figures["over TLS"] += int(self.wire.tls)
        if self.wire.web is not None:
            self._come_over(self.wire.web, client)
        self.reactor.connect(client.line, self.group.buildProtocol)
        self.clients.append(client)
        client.pump()
        self.log(f"      client {client.number} is {client.protocol}")
        return client

    def _come_over(self, web: Web, client: Client) -> None:
        """Have some come over WebSocket."""
        chance = random.Random(f"wire web/{self.seed}/{client.number}")
        if chance.random() < web.share:
            client.line.web = WebSocket(chance, web, client.protocol, client)
            client.quiet = chance.random() < web.quiet
            self.figures["over WebSocket"] += 1

    def left(self, client: Client) -> None:
        """A client's connection has ended."""
        if client in self.clients:
            self.clients.remove(client)

    def some_line(self) -> Line | None:
        """Return a line that is in use."""
        lines = [client.line for client in self.clients if not client.line.client_gone]
        return self.chance.choice(lines) if lines else None

    def happen(self) -> bool:
        """Have one thing happen on the network; returns whether there was one."""
        ready = self.reactor.ready()
        if not ready:
            return False
        what, line = self.chance.choice(ready)
        size = self.chance.randint(1, self.wire.chunk)
        self.reactor.act(what, line, size)
        if what == "read" and isinstance(line.end, Client):
            line.end.pump()
        return True

    def flow(self) -> None:
        """Let all happen that can."""
        for _ in range(CALM_MAX):
            moved = False
            for _ in range(CALM_MAX):
                if not self.happen():
                    break
                moved = True
            for client in list(self.clients):
                client.pump()
            busy = bool(self.later)
            self.settle()
            if not (moved or busy or self.reactor.ready()):
                return
        raise ViolationError("the network never comes to rest")

    def pass_time(self, by_ms: int) -> None:
        rest = by_ms
        while rest > 0:
            part = min(rest, 1000)
            super().pass_time(part)
            rest -= part
            for client in list(self.clients):
                client.beat()
                line = client.line
                slow = line.waiting or (line.down.data and (client.quiet or not client.up))
                line.waited = line.waited + part if slow else 0
                # What it says is late, for all that the gateway can know.
                client.excused |= line.waited > LATE_MS
            if by_ms > 1000:
                for _ in range(20):
                    self.happen()

    def disturb_clocks(self) -> None:
        before = self.clocks.reactor.seconds()
        super().disturb_clocks()
        passed = self.clocks.reactor.seconds() - before
        for client in self.clients if passed else ():
            client.beat()  # clients do not stand still with the gateway
            client.line.waited += int(passed * 1000)
            client.excused |= client.line.waited > LATE_MS

    # ---- a life

    def begin_life(self) -> tuple[int, dict[str, float]]:
        steps = self.chance.choice(self.plan.steps)
        self.may_fail(crash=0.6, calls=steps // 2, syncs=0.3, full=0.6)
        for _ in range(self.chance.randint(0, self.wire.clients)):
            self.connect()
        return steps, self.wire.weights

    def act(self, name: str) -> None:
        self.disturb_clocks()
        self.log(f"  {name}")
        operation = OPERATIONS.get(name) or WEB_OPERATIONS[name]
        operation(self)

    def between(self, number: int) -> None:
        if number % 10 == 0:
            self.turn()
            self.check()
            self.reactor.forget()

    def go_off(self) -> None:
        """The process is gone; what it had handed to the network may still arrive, or a part."""
        for client in list(self.clients):
            line = client.line
            if self.chance.random() < 0.5:
                line.down.cut(self.chance)
            self.hear_out(client)
        self.lose()

    def hear_out(self, client: Client) -> None:
        """Let a client read what is still on its way, and find that its connection has ended."""
        line = client.line
        line.server_gone = client.excused = True
        while not line.client_gone and line.down.data:
            line.hear(line.down.take(self.chance.randint(1, self.wire.chunk)))
        line.client_gone = True
        client.closed()

    def close(self) -> None:
        """Stop in order: each protocol says good-bye, then the store stops."""
        self.log("close")
        for client in self.clients:
            client.excused = True
        self.group.stop()
        for _ in range(self.chance.randint(0, 40)):
            self.happen()
            self.turn()
        self.group.abort()
        self.clocks.advance(0)
        self.settle()
        for client in list(self.clients):
            self.hear_out(client)
        if self.group.wires:
            raise ViolationError(f"connections survive a stop: {list(self.group.wires)}")
        if not self.failed:
            self.check()
            self.check_nobody()
        self.stop_store()

    # ---- checks

    def check(self) -> None:
        """What must hold at any time between two turns."""
        self.clocks.check()
        for queue in self.gateway.queues.values():
            queue.check_invariants()
        self.check_accounts()

    def check_nobody(self) -> None:
        """Without connections nothing is held, and nobody waits."""
        for queue in self.gateway.queues.values():
            if queue.delivering or queue.consumer_count:
                raise ViolationError(
                    f"{queue.name}: {queue.delivering} delivering to {queue.consumer_count}, "
                    "and nobody is connected"
                )
        if self.unfinished.held:
            raise ViolationError(f"{self.unfinished.held} bytes of nobody are unfinished")

    # ---- the end

    def finish(self) -> None:
        """Nothing fails any more: all is taken, all is answered, and nothing stays anywhere."""
        self.log("calm")
        self.calming = True
        self.clocks.repair()
        self.wire.chunk = 65536
        queues = sorted({*self.known_queues(), DEAD, EXPIRED})
        for _ in range(self.chance.randint(0, 2)):
            self.connect()
        self.flow()
        for queue in queues:
            self._drainer(queue)
        for round_ in range(CALM_MAX):
            self.flow()
            for client in list(self.clients):
                if client.ready:
                    client.demand()
                    client.settle(client.held(), "ack")
            self.flow()
            self.pass_time(100 if round_ < 50 else 1000)
            if self._empty(queues):
                break
        else:
            left = {n: q.message_count for n, q in self.gateway.queues.items() if q.message_count}
            raise ViolationError(f"never empty: {left}")
        self._probe(queues)

    def _drainer(self, queue: str) -> None:
        client = self.connect()
        self.flow()
        if not client.ready:
            raise ViolationError("a client cannot come in")
        try:
            client.subscribe(queue)
        except RefusedError:
            return

    def _empty(self, queues: list[str]) -> bool:
        found = [q for q in self.gateway.queues.values() if q.message_count]
        return not found and not any(c.held() for c in self.clients)

    def _probe(self, queues: list[str]) -> None:
        """Who sends now is answered; then all leave, and nothing of them stays."""
        if self.wire.web is not None:
            self.flow()
        for client in self.clients:
            if client.line.web is not None:
                client.line.web.check_rest()
                self.figures["Pongs"] += client.line.web.answered
        waiting = list(self.ledger.waiting())
        answered = [c for c in self.clients if c.ready]
        for client in answered:
            for send in client.asked_with:
                if send in waiting and send.part is None:
                    raise ViolationError(f"nobody was answered of {send}")
        for client in list(self.clients):
            if client.ready:
                client.leave()
        self.flow()
        self.pass_time(6000)
        self.flow()
        if self.clients:
            raise ViolationError(f"{len(self.clients)} do not get away")
        self.check()
        self.check_nobody()
        self.ledger.check_end()
        self.check_empty()
        self.figures["delivered"] = self.ledger.came
        self.figures["sent"] = self.serial


class Watched:
    """A subscription whose returned messages the ledger hears of."""

    def __init__(self, hold: object, world: WireWorld) -> None:
        self._hold = hold
        self._world = world

    def __getattr__(self, name: str) -> object:
        return getattr(self._hold, name)

    def release(self, messages: list[Message], **how: bool) -> int:
        hold = self._hold
        failed = how.get("failed", False)
        back = self._world.ledger.went_back(hold.queue_name, messages, failed=failed)
        self._world.log(f"      {back} back to {hold.queue_name}{', failed' if failed else ''}")
        return hold.release(messages, **how)


def _tell() -> None:
    """Raise what somebody caught only to log it."""
    raise  # noqa: PLE0704 - called where it was caught


def run_wire_seed(seed: int | str) -> WireWorld:
    """Run one seed; raises what it found, with the last events as a note."""
    return run_to_its_end(WireWorld(seed))


def run_websocket_seed(seed: int | str) -> WireWorld:
    """The same, and some of the clients come over WebSocket whatever the seed says."""
    return run_to_its_end(WireWorld(seed, websocket=True))
