"""What the connections of one reactor share to read from their sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocols.transport.departures import Departures
from protocols.transport.patience import Patience
from protocols.transport.unread import Backlogs

#: `socket.recv(n)` makes room for `n` bytes first; above 128 KiB the C library takes that from the
#: kernel each time. Reading into a buffer that is there, and copying what came, costs a quarter of
#: it for 300 bytes, and a tenth for 200,000 (measured on Linux).
#: Larger reads cost less per message: with 256 B messages a fifth less than Twisted's 64 KiB.
READ_BYTES: Final = 262144
#: What is read at once of a peer whose bytes cost much, such as a TLS record for each of them.
LEAST_READ_BYTES: Final = 4096

#: Reads what there is. False: there is something else, which the reactor has to look at.
Reader = Callable[[], bool]


class Reads:
    """What the connections of one reactor share to read; for its thread only.

    Attributes:
        buffer: what is read into; what came has to be copied before anything else happens.
        direct: by descriptor, whom to call when it can be read and nothing else is the matter.
        departures: who tells of a peer that leaves while it is not read from; None for nobody.
        patience: how long each may work in one turn; None: as long as there is something to do.
        backlogs: who tells of a peer that does not read what is sent to it; None for nobody.
    """

    __slots__ = ("backlogs", "buffer", "departures", "direct", "patience")

    def __init__(
        self,
        departures: Departures | None = None,
        patience: Patience | None = None,
        backlogs: Backlogs | None = None,
    ) -> None:
        self.backlogs = backlogs
        self.departures = departures
        self.patience = patience
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.direct: dict[int, Reader] = {}
