"""Memory that is free again stays with the process: not fetched anew for each large answer."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from gateway.assembly import service
from gateway.process.heap import keep_heap
from protocols.transport.patience import SHARE_SECONDS

GLIBC = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
ROUNDS = 200
#: Makes and frees three answers of 700 kB again and again; prints how many pages were fetched.
PROGRAM = f"""
import resource, sys
if sys.argv[1] == "keep":
    from gateway.process.heap import keep_heap
    assert keep_heap({{}})
def answers():
    for _ in range({ROUNDS}):
        three = [b"x" * 700_000 for _ in range(3)]
        del three
answers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
answers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_fetched(how: str) -> int:
    """Run the program in a process of its own, that nobody has tuned."""
    plain = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env=plain, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not GLIBC, reason="another C library is left alone")
def test_large_answers_do_not_fetch_their_pages_again():
    assert pages_fetched("leave") > ROUNDS * 100
    assert pages_fetched("keep") < ROUNDS


@pytest.mark.parametrize(
    "decided",
    [{"MALLOC_TRIM_THRESHOLD_": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}],
)
def test_what_the_environment_decides_is_left_alone(decided):
    assert not keep_heap(decided)


def test_a_gateway_that_is_ready_keeps_its_heap_and_lets_its_writer_work(monkeypatch):
    asked = []
    monkeypatch.setattr(service, "keep_heap", lambda: asked.append(True))
    monkeypatch.setattr(service.sys, "setswitchinterval", asked.append)
    monkeypatch.setattr(service.gc, "freeze", lambda: None)
    monkeypatch.setattr(service.gc, "set_threshold", lambda *_: None)
    service.tune()
    # A thread that waits for longer than a busy peer works at a time begins to wait anew each time.
    (seconds,) = (one for one in asked if one is not True)
    assert 0 < seconds < SHARE_SECONDS
    assert True in asked
