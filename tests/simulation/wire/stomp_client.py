"""A STOMP client of the simulation, for 1.0, 1.1 and 1.2."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.model import ViolationError
from tests.simulation.wire.client import Client, Delivery, Subscription
from tests.simulation.wire.ledger import ASKED, FAILED, OK, UNKNOWN, Part
from tests.simulation.wire.stomp_frames import Frame, Reader, write

if TYPE_CHECKING:
    from tests.simulation.wire.world import WireWorld

MODES = ("auto", "client", "client", "client-individual", "client-individual")
_BEAT_SECONDS = 2.0


def _nothing() -> None:
    """Nobody wants to know."""


class StompSubscription(Subscription):
    """`name` is its id; `prefetch` how many it may be sent unacknowledged, 0 any number."""

    def __init__(self, client: Client, queue: str, name: str, mode: str, prefetch: int) -> None:
        super().__init__(client, queue, automatic=mode == "auto")
        self.name = name
        self.mode = mode
        self.prefetch = prefetch
        self.confirmed = False


class StompClient(Client):
    """See the module text. `receipts` are asked for and not come, in the order of their frames."""

    protocol = "stomp"

    def __init__(self, world: WireWorld, number: int) -> None:
        super().__init__(world, number)
        self.version = self.chance.choice(["1.0", "1.1", "1.2"])
        self._reader = Reader()
        self._out = bytearray()
        self.receipts: deque[tuple[str, Callable[[], None], Callable[[], None]]] = deque()
        self._count = 0
        self._names: dict[Part, str] = {}
        self._by_name: dict[str, StompSubscription] = {}
        self._beat_at = world.clocks.reactor.rightNow
        headers = {"host": "sim", "login": "user", "passcode": "pass"}
        if self.version != "1.0":
            headers["accept-version"] = self.version
        if self.chance.random() < 0.5:
            headers["heart-beat"] = "4000,0"
        self._out += write("CONNECT", headers)

    # ---- bytes

    def pump(self) -> None:
        up = self.line.up
        if self.line.client_gone or up.ended:
            return
        count = min(up.room, len(self._out))
        up.data += self._out[:count]
        del self._out[:count]
        if self.leaving and not self._out and not self.receipts:
            up.ended = True  # it waits for nothing any more

    def receive(self, data: bytes) -> None:
        for frame in self._reader.read(data):
            match frame.command:
                case "CONNECTED":
                    self.up = True
                    self._reader.version = self.version
                case "MESSAGE":
                    self._message(frame)
                case "RECEIPT":
                    self._receipt(frame.headers["receipt-id"])
                case "ERROR":
                    self._error(frame)
                case _:
                    raise ViolationError(f"{frame.command} came from the gateway")

    def beat(self) -> None:
        now = self.world.clocks.reactor.rightNow
        if self.up and not self.quiet and now >= self._beat_at + _BEAT_SECONDS and not self._out:
            self._beat_at = now
            self._out += b"\n"
            self.pump()

    def _write(
        self,
        command: str,
        headers: dict[str, str],
        body: bytes = b"",
        *,
        receipt: tuple[Callable[[], None], Callable[[], None]] | None = None,
    ) -> None:
        if receipt is not None:
            self._count += 1
            name = f"r:{self._count}" if self.version != "1.0" else f"r{self._count}"
            headers = {"receipt": name, **headers}
            self.receipts.append((name, *receipt))
        self._out += write(command, headers, body, self.version)
        self.pump()

    # ---- what comes

    def _receipt(self, name: str) -> None:
        if not self.receipts or self.receipts[0][0] != name:
            expected = self.receipts[0][0] if self.receipts else "none"
            raise ViolationError(f"RECEIPT {name} came, and {expected} is next")
        _, done, _ = self.receipts.popleft()
        self.log(f"RECEIPT {name}")
        done()

    def _error(self, frame: Frame) -> None:
        self.log(f"ERROR {frame.headers.get('message', '')[:80]}")
        self.world.figures["errors"] += 1
        name = frame.headers.get("receipt-id")
        if name is not None:
            if not self.receipts or self.receipts[0][0] != name:
                raise ViolationError(f"ERROR for {name} came out of its turn")
            self.receipts.popleft()[2]()
        for send in self.asked:
            if send.state == ASKED and send.part is None:
                self.ledger.answer(send, UNKNOWN)
        self.world.refused(self, frame.headers.get("message", ""))

    def _message(self, frame: Frame) -> None:
        found = self._by_name.get(frame.headers["subscription"])
        if found is None or not found.open:
            return  # it crossed with the UNSUBSCRIBE
        if not found.confirmed:
            raise ViolationError("a MESSAGE came before the RECEIPT of its SUBSCRIBE")
        marked = frame.headers["redelivered"] == "true"
        handle = frame.headers[
            "ack" if self.version == "1.2" and found.mode != "auto" else "message-id"
        ]
        origin = frame.headers.get("_AMQ_ORIG_QUEUE", frame.headers.get("x-opt-ORIG-QUEUE", ""))
        self.got(found, frame.body, handle, marked=marked, origin=origin)
        held = sum(delivery.part is None for delivery in found.held)
        if found.prefetch and held > found.prefetch:
            raise ViolationError(f"{held} held, {found.prefetch} were to be sent ahead")

    # ---- what it does

    def send(self, address: str, payloads: list[bytes], part: Part | None = None) -> None:
        with_receipt = self.chance.random() < 0.7
        name = self.world.named(address, self.chance, stomp=True)
        for payload in payloads:
            send = self.sending(address, payload, part, (address, name))
            headers = {
                "destination": name,
                "content-length": str(len(payload)),
                "persistent": str(send.durable).lower(),
            }
            if send.expires:
                headers["expires"] = str(send.expires)
            if send.due:
                headers["AMQ_SCHEDULED_TIME"] = str(send.due)
            if part is not None:
                headers["transaction"] = self._names[part]
                self._write("SEND", headers, payload, receipt=self._any_receipt())
            elif with_receipt:
                told = partial(self.ledger.answer, send)
                self._write(
                    "SEND", headers, payload, receipt=(partial(told, OK), partial(told, FAILED))
                )
                self.asked_with.append(send)
            else:
                self.asked.append(send)
                self._write("SEND", headers, payload)

    def _any_receipt(self) -> tuple[Callable[[], None], Callable[[], None]] | None:
        return (_nothing, _nothing) if self.chance.random() < 0.5 else None

    def subscribe(self, queue: str) -> None:
        self._count += 1
        mode = self.chance.choice(MODES)
        prefetch = self.chance.choice([0, 0, 1, 3]) if mode != "auto" else 0
        found = StompSubscription(self, queue, f"s{self._count}", mode, prefetch)
        if mode == "auto":
            self.ledger.automatic.add(queue)
        headers = {"destination": self.world.fqqn(queue), "id": found.name, "ack": mode}
        if prefetch:
            headers["prefetch-count"] = str(prefetch)
        elif self.chance.random() < 0.5:
            headers["consumer-window-size"] = self.chance.choice(["-1", "1", "500", "5000"])
        self._by_name[found.name] = found
        self.subscriptions.append(found)
        if self.chance.random() < 0.5:

            def began() -> None:
                found.confirmed = True

            def refused() -> None:
                self.drop(found, seen=False)

            self._write("SUBSCRIBE", headers, receipt=(began, refused))
        else:
            found.confirmed = True
            self._write("SUBSCRIBE", headers)

    def settle(self, deliveries: list[Delivery], how: str, part: Part | None = None) -> None:
        if how in ("reject", "release") or (how == "nack" and self.version == "1.0"):
            how = "ack"
        for delivery in deliveries:
            if delivery.part is not None or delivery not in delivery.subscription.held:
                continue  # a cumulative one took it already
            self._settle_one(delivery, how, part)

    def _settle_one(self, delivery: Delivery, how: str, part: Part | None) -> None:
        found = delivery.subscription
        assert isinstance(found, StompSubscription)
        covered = [delivery]
        if found.mode == "client":
            earlier = found.held[: found.held.index(delivery) + 1]
            covered = [d for d in earlier if d.part is None]
            for one in earlier:
                if one.part is not None and part is None:
                    # What a transaction that has failed did not take is taken by this one.
                    one.part.settles = [
                        held for held in one.part.settles if held[0] is not one.copy
                    ]
                    one.copy.asked.add(how)
                    one.copy.must_mark = True
                    one.copy.holder = None
        headers: dict[str, str]
        if self.version == "1.2":
            headers = {"id": str(delivery.handle)}
        else:
            headers = {"message-id": str(delivery.handle)}
            if self.version == "1.1":
                headers["subscription"] = found.name
        copies = [d.copy for d in covered]
        self.log(f"{how} {[c.send.serial for c in copies]}{' in a part' if part else ''}")
        if part is not None:
            headers["transaction"] = self._names[part]
            for one in covered:
                one.part = part
                part.settles.append((one.copy, one.returns))
            self._write("ACK", headers, receipt=self._any_receipt())
            return
        for one in covered:
            found.held.remove(one)
            self.ledger.settle(one.copy, how)
        receipt = None
        if self.chance.random() < 0.5:

            def done() -> None:
                for copy in copies:
                    self.ledger.confirm(copy, how)

            receipt = (done, _nothing)
        self._write("ACK" if how == "ack" else "NACK", headers, receipt=receipt)

    # ---- transactions

    def begin(self) -> None:
        self._count += 1
        part = Part()
        self.parts.append(part)
        self.ledger.parts.append(part)
        self._names[part] = f"t{self._count}"
        self._write("BEGIN", {"transaction": self._names[part]}, receipt=self._any_receipt())

    def end(self, part: Part, *, commit: bool) -> None:
        headers = {"transaction": self._names[part]}
        self.parts.remove(part)
        self.log("commit" if commit else "roll back")
        if commit:
            part.commit()
            self.ending.append(part)
            self._write(
                "COMMIT",
                headers,
                receipt=(partial(self._ended, part, OK), partial(self._ended, part, FAILED)),
            )
        else:
            self.ledger.end_part(part, FAILED)
            self.give_back(part)
            self._write("ABORT", headers, receipt=self._any_receipt())

    def _ended(self, part: Part, state: str) -> None:
        self.ending.remove(part)
        if state == FAILED:
            self.give_back(part)
        self.forget(part)
        self.ledger.end_part(part, state)
        self.world.figures[f"stomp commits {state}"] += 1

    # ---- the end

    def unsubscribe(self, subscription: Subscription) -> None:
        assert isinstance(subscription, StompSubscription)
        if self.parts or self.ending:
            return
        self.log(f"leaves {subscription.queue}")
        self.drop(subscription, seen=False)
        headers = {"id": subscription.name}
        self._write("UNSUBSCRIBE", headers, receipt=self._any_receipt())

    def leave(self) -> None:
        for part in list(self.parts):
            self.end(part, commit=False)
        self.log("says good-bye")
        self.leaving = True
        self._write("DISCONNECT", {}, receipt=(self._left, _nothing))

    def _left(self) -> None:
        """All that was sent on this connection is stored, also what had no receipt."""
        for send in self.asked:
            if send.state == ASKED:
                self.ledger.answer(send, OK)
        self.world.figures["disconnect receipts"] += 1
        self.pump()
