"""Pools of threads that are there from the start, since later the system may give none."""

from __future__ import annotations

import threading
from functools import partial

from twisted.python.threadpool import ThreadPool


def started_pool(count: int, name: str) -> ThreadPool:
    """Return a pool, not started, whose threads are all there once it is.

    Later the system may give none. They keep no process alive that could not start.
    """
    pool = ThreadPool(count, count, name)
    setattr(pool, "threadFactory", partial(threading.Thread, daemon=True))  # noqa: B010
    return pool
