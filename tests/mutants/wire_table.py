"""Bugs planted where bytes become calls and back, and in the clocks."""

from __future__ import annotations

from tests.mutants.plant import Mutant
from tests.simulation.core.world import run_core_seed
from tests.simulation.wire.world import run_wire_seed


def _wire(name: str, target: str, old: str, new: str, first: int = 0) -> Mutant:
    return Mutant(name, target, old, new, run_wire_seed, first)


def _clock(name: str, target: str, old: str, new: str) -> Mutant:
    return Mutant(name, target, old, new, run_core_seed)


WIRE_MUTANTS = (
    _wire(
        "AMQP: accepted before it is on disk",
        "protocols.amqp.confirmations:Confirmations.accept_later",
        "    accepts = self._accepts\n",
        "    session.accept(first, count)\n    return link.confirmed(count)\n",
    ),
    _wire(
        "AMQP: an answer before its ticket is on disk",
        "protocols.amqp.confirmations:Confirmations.answer_later",
        "if not ticket:",
        "if True:",
    ),
    _wire(
        "AMQP: a range of outcomes is one too long",
        "protocols.amqp.unsettled:Unsettled._places",
        "(last_id - first_id) & 0xFFFFFFFF)",
        "(last_id - first_id + 1) & 0xFFFFFFFF)",
    ),
    _wire(
        "AMQP: a range of outcomes is one too short",
        "protocols.amqp.unsettled:Unsettled._places",
        "(last_id - first_id) & 0xFFFFFFFF)",
        "max(0, last_id - first_id - 1))",
    ),
    _wire(
        "AMQP: credit is not counted down",
        "protocols.amqp.outgoing:OutgoingLink.deliver",
        "    self.credit -= count\n",
        "    self.credit -= count // 2\n",
    ),
    _wire(
        "AMQP: a flow counts from now",
        "protocols.amqp.outgoing:OutgoingLink.flow",
        "credit + min(0, ahead)",
        "credit",
        55,
    ),
    _wire(
        "AMQP: what a cut connection had stays with it",
        "protocols.amqp.connection:AmqpConnection.connection_lost",
        "        self._release(lost=True)\n",
        "        pass\n",
    ),
    _wire(
        "AMQP: what a cut connection had is not marked",
        "protocols.amqp.connection:AmqpConnection.connection_lost",
        "_release(lost=True)",
        "_release(lost=False)",
    ),
    _wire(
        "AMQP: what a stop takes back is not marked",
        "protocols.amqp.connection:AmqpConnection.fail",
        "_release(lost=True)",
        "_release(lost=False)",
        90,
    ),
    _wire(
        "AMQP: a closed link keeps what is not settled",
        "protocols.amqp.outgoing:OutgoingLink.close",
        "        subscription.release(part, failed=tried)\n",
        "        pass\n",
    ),
    _wire(
        "AMQP: a frame in three reads loses the last",
        "protocols.amqp.connection:AmqpConnection.receive_data",
        'b"".join(self._parts)',
        'b"".join(self._parts[:2])',
    ),
    _wire(
        "AMQP: the rest of a frame begins at the read",
        "protocols.amqp.connection:AmqpConnection._consume",
        "[data[at:] if at else data]",
        "[data]",
    ),
    _wire(
        "AMQP: a transaction of a lost connection is committed",
        "protocols.amqp.open_transaction:OpenTransaction.give_back",
        "self._work.rollback()",
        "self._work.commit()",
    ),
    _wire(
        "AMQP: modified counts as released",
        "protocols.amqp.outgoing:OutgoingLink.settle",
        "failed=failed, here=here",
        "failed=False, here=here",
    ),
    _wire(
        "AMQP: no mark on what came before",
        "protocols.amqp.outgoing:OutgoingLink._dressed",
        "if attempts or flags & MAYBE_SEEN:",
        "if attempts:",
    ),
    _wire(
        "AMQP: what somebody gave back says that nobody had it",
        "gateway.queues.returns:Returns.note_acquired",
        "message.flags |= ACQUIRED",
        "message.flags |= 0",
    ),
    _wire(
        "AMQP: a delivery of several frames loses its middle",
        "protocols.amqp.outgoing:OutgoingLink._split_one",
        "range(0, len(body), room)",
        "range(0, len(body), room + 1)",
    ),
    _wire(
        "STOMP: RECEIPT before it is on disk",
        "protocols.stomp.outbox:Outbox.confirm",
        "if self._waiting or ticket > self._durable:",
        "if self._waiting:",
    ),
    _wire(
        "STOMP: RECEIPTs out of order",
        "protocols.stomp.outbox:Outbox.confirm",
        "if self._waiting or ticket > self._durable:",
        "if ticket > self._durable:",
    ),
    _wire(
        "STOMP: DISCONNECT's RECEIPT does not wait",
        "protocols.stomp.traffic:Traffic._act",
        "finish(answer, self._connection.outbox.needed)",
        "finish(answer, 0)",
        245,
    ),
    _wire(
        "STOMP: a NACK is forgotten",
        "protocols.stomp.commands:Commands._nack",
        "ticket = consumer.subscription.release(messages, failed=True, delayed=True)",
        "ticket = 0",
    ),
    _wire(
        "STOMP: a NACK is no attempt",
        "protocols.stomp.commands:Commands._nack",
        "failed=True, delayed=True",
        "failed=False, delayed=True",
    ),
    _wire(
        "STOMP: a cumulative ACK takes one more",
        "protocols.stomp.holds:CumulativeHold.take",
        "wanted = number + 1 - first",
        "wanted = number + 2 - first",
    ),
    _wire(
        "STOMP: prefetch-count is not kept",
        "protocols.stomp.window:Window.room",
        "self._prefetch - held",
        "self._prefetch",
    ),
    _wire(
        "STOMP: what a cut connection had stays with it",
        "protocols.stomp.commands:Commands.leave",
        "    self.subscriptions.leave_all()\n",
        "",
    ),
    _wire(
        "STOMP: redelivered is not said",
        "protocols.stomp.message_frames:MessageFrames._piece",
        "seen if m.flags & SEEN else fresh",
        "fresh",
    ),
    _wire(
        "STOMP: a transaction of a lost connection is committed",
        "protocols.stomp.transactions:Transactions.abort_all",
        "self.abort(name)",
        "self.commit(name)",
    ),
    _wire(
        "STOMP: ABORT forgets what was acknowledged",
        "protocols.stomp.transactions:NamedTransaction._undo",
        "    self.work.rollback()\n",
        "    pass\n",
    ),
    _wire(
        "shell: what the socket did not take is sent again",
        "protocols.transport.outgoing:Outgoing.put",
        "data[sent:]",
        "data",
    ),
    _wire(
        "shell: who does not read is never asked again",
        "protocols.transport.outgoing:Outgoing.resumeProducing",
        "        session.write_resumed()\n",
        "        pass\n",
        258,
    ),
    _wire(
        "shell: a lost connection is not told to its session",
        "protocols.transport.shell:Wire._end_session",
        "        session.connection_lost(self._now())\n",
        "        pass\n",
    ),
    _wire(
        "shell: reading does not go on",
        "protocols.transport.shell:Wire._reading",
        "        transport.resumeProducing()\n",
        "        pass\n",
    ),
    _wire(
        "a peer counts as silent while the gateway stood still",
        "gateway.time.steady:ActiveSeconds.__call__",
        "        self._lost += gap\n",
        "        pass\n",
        45,
    ),
    _clock(
        "time to live goes by the wall clock",
        "gateway.time.clock:BrokerClock.now_ms",
        "return (now + self._offset) // 1_000_000",
        "return self._wall() // 1_000_000",
    ),
    _clock(
        "a large step is followed at once",
        "gateway.time.clock:BrokerClock._judge",
        "if abs(step) <= STEP_MAX_SECONDS * _SECOND:",
        "if step <= 40 * 24 * STEP_MAX_SECONDS * _SECOND:",
    ),
    _clock(
        "a large step is never taken over",
        "gateway.time.clock:BrokerClock._judge",
        "        self._follow()\n",
        "        pass\n",
    ),
    _clock(
        "broker time goes back with the wall clock",
        "gateway.time.clock:BrokerClock._judge",
        "max(step, (self._last - now) // 2)",
        "step",
    ),
    _clock(
        "broker time stands still until the wall clock is there",
        "gateway.time.clock:BrokerClock._judge",
        "(self._last - now) // 2",
        "self._last - now",
    ),
)
