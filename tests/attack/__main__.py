"""`python -m tests.attack`: every flood for a while, and a table of what it came to."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.trial.scratch import ScratchGateway
from tests.attack.floods import FLOODS
from tests.attack.run import SETTINGS, Seen, attack, part
from tests.certificates import Authority

PAGE = Path(__file__).resolve().parents[2] / "docs" / "attack.md"
HEAD = """# Hostile peers

What each flood came to, as `make attack` measures it. The floods are in `tests/attack/floods.py`;
each peer is a process of its own, and each line has a gateway of its own. Peers, gateway and honest
client share one machine: two cores where these figures come from, so that four peers which never
pause leave the gateway less than one.

* **bystander**: a STOMP client sends one durable message at a time and waits for its receipt; the
  middle of these waits, and the 99th of a hundred.
* **`/livez`**: the same of requests, each on a connection of its own.
* **growth**: resident memory at its highest, beside what it was before.
* **descriptors**: the most that were open.
* **lives**: the gateway still runs at the end.

Growth stays below 64 MiB, which `tests/attack/test_floods.py` holds. One hostile peer is to delay
an honest client by less than 50 ms, 99 times in a hundred. The floods whose names begin with `ws-`
come over WebSocket, to a gateway that lets peers compress (`ws-compression=deflate`).

The floods of streams and of the sink (`*-replays*`, `streams-*`, `sink-*`) meet a gateway with a
history of 48 MiB. Where their peers do not read, growth is what their connections may hold: 2 MiB
of a replay, and what limits.md says of reads. Their rows were measured with one peer, on two cores
that had ten times as much other work: their waits say that nobody starves, and no more than that.
`streams-*` take all connections of management, and `/livez` may be told to come again.

| flood | over | peers | bystander ms | `/livez` ms | growth MiB | descriptors | lives |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |
"""


def line(seen: Seen, over: str) -> str:
    """Return a row of the table."""
    waits = f"{part(seen.waits, 0.5):.1f} / {part(seen.waits, 0.99):.1f}"
    alive = f"{part(seen.live, 0.5):.1f} / {part(seen.live, 0.99):.1f}"
    return (
        f"| {seen.flood.replace('_', '-')} | {over} | {seen.peers} | {waits} | {alive} "
        f"| {seen.grew:.0f} | {seen.descriptors} | {'yes' if seen.alive else 'NO'} |"
    )


def progress(head: str) -> Callable[[float], None]:
    """Return what shows how long a flood has lasted, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None

    def tell(passed: float) -> None:
        print(f"\r{head} {passed:4.0f} s", end="", file=sys.stderr, flush=True)

    return tell


def run(wanted: argparse.Namespace) -> Iterator[str]:
    """Yield the rows as they are known."""
    names = [name for name in FLOODS if not wanted.only or name in wanted.only.split(",")]
    work = [(name, over, n) for name in names for over in ("tcp", "tls") for n in wanted.peers]
    for at, (name, over, peers) in enumerate(work, 1):
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(Path(folder) / "ca") if over == "tls" else None
            pair = authority.issue("localhost") if authority is not None else None
            gateway = ScratchGateway(
                Path(folder) / "gateway",
                settings=SETTINGS,
                tls=None if pair is None else (pair.certificate, pair.key),
            )
            gateway.start()
            try:
                seen = attack(
                    gateway,
                    name,
                    peers=peers,
                    seconds=wanted.seconds,
                    tls=None if authority is None else authority.client(),
                    tell=progress(f"[{at}/{len(work)}] {name} {over} x{peers}"),
                )
            finally:
                gateway.kill()
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        yield line(seen, over)


def main() -> int:
    parser = argparse.ArgumentParser(prog="attack")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each flood")
    parser.add_argument("--only", default="", help="floods, comma-separated")
    parser.add_argument("--peers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--write", action="store_true", help="write docs/attack.md")
    wanted = parser.parse_args()
    rows = []
    for row in run(wanted):
        print(row, flush=True)
        rows.append(row)
    if wanted.write:
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", "utf-8")
    return 1 if any(row.endswith("NO |") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
