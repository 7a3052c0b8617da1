"""The face that sessions talk to, and the order that makes its promises true.

The durable order, stated once:

    1  admission says yes, or the sender is refused and nothing is stored
    2  the run is in its queues (a full ring has evicted) and, when durable or tapped, in the open
       journal batch
    3  at the end of the turn queues hand out what they can: dispatch does not wait for the disk
    4  the journal takes the batch; what was acknowledged before is left out of it (concurrent store
       and dispatch)
    5  the batch is synced; `durable_up_to(ticket)` goes to every listener that waits
    6  only then do accepted, RECEIPT and commit leave, and stream heads move

A confirmation never leaves by another way than step 5, except for what is not stored at all (ticket
0). A definition (queue, address, stream) is in the same batch as, or an earlier one than, the first
message that needs it.
"""

from gateway.broker.gateway import Gateway
from gateway.broker.ports.store import Store
from gateway.broker.ports.streams import Streams
from gateway.broker.pressure.load import Limits

__all__ = ["Gateway", "Limits", "Store", "Streams"]
