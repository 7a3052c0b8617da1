"""Reading from sockets: one buffer for all connections of a reactor, and who reads by itself.

`socket.recv(n)` makes room for `n` bytes first and gives back what it did not need. Above 128 KiB
the C library takes that room from the kernel each time: 10 to 90 us a read, measured on Linux.
Reading into a buffer that is there, and copying what came, costs a tenth of it.

    register --> a reader stands for its descriptor: called when nothing but reading is possible
    forget   --> it does not any more

It knows neither protocols nor the reactor: who polls asks `direct`.
"""

from __future__ import annotations

from collections.abc import Callable

#: Larger reads cost less per message: with 256 B messages a fifth less than Twisted's 64 KiB.
READ_BYTES = 262144

#: Reads what there is. False: there is something else, which the reactor has to look at.
Reader = Callable[[], bool]


class Reads:
    """What the connections of one reactor share to read; for its thread only.

    Attributes:
        buffer: what is read into; what came has to be copied before anything else happens.
        direct: by descriptor, whom to call when it can be read and nothing else is the matter.
    """

    __slots__ = ("buffer", "direct")

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.direct: dict[int, Reader] = {}
