"""How much a hostile input may cost. The limits tell a bounded walk from an endless one.

They are far above what the input costs on any machine, and far below what it would cost unbounded
(minutes, or gigabytes): this is no measure of speed, which `make bench` takes. So that the process
around it has no say, the time is the CPU time of this thread, and no garbage of other tests is
collected meanwhile.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 5.0


@contextmanager
def costs(*, peak: int | None = None) -> Iterator[None]:
    """Fail when the block takes more than `SECONDS` of CPU, or holds over `peak` bytes at once."""
    collected = gc.isenabled()
    gc.disable()
    if peak is not None:
        tracemalloc.start()
    began = time.thread_time()
    held = 0
    try:
        yield
        took = time.thread_time() - began
        if peak is not None:
            held = tracemalloc.get_traced_memory()[1]
    finally:
        if peak is not None:
            tracemalloc.stop()
        if collected:
            gc.enable()
    assert took < SECONDS
    assert peak is None or held < peak
