"""Gateways whose disk a test can fill: one of figures, one a small file system of its own.

`python -m tests.conformance.small_disk FIGURES ...` is the gateway with arguments `...`, but its
disk monitor is told by the JSON file FIGURES (`{"total", "free"}`) what the disk holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.cli.main import main
from gateway.disk import watching as disk_watch
from gateway.disk.judging import Space
from gateway.trial.scratch import ScratchGateway

GIB = 1 << 30
TOTAL = 100 * GIB


class FiguresGateway(ScratchGateway):
    """A gateway process that believes what `set_free` says."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Sequence[str] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        period = "disk-scan-period=100"
        super().__init__(folder, settings=[period, 'min-disk-free="1GiB"', *settings], tls=tls)
        self.figures = folder / "figures.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.set_free(50 * GIB)

    def set_free(self, free: int) -> None:
        """What the next scan finds."""
        new = self.figures.with_suffix(".new")
        new.write_text(json.dumps({"total": TOTAL, "free": free}))
        new.rename(self.figures)

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.conformance.small_disk", str(self.figures), *arguments]

    @property
    def disk(self) -> dict[str, object]:
        status, store = self.request("GET", "/api/v1/store")
        assert status == 200
        assert isinstance(store, dict)
        return store["disk"]


class MountedGateway(ScratchGateway):
    """A gateway process whose data directory is on a file system that `mounted` has made."""

    def __init__(self, folder: Path, holder: int, *, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, settings=settings)
        self._holder = holder
        self.data = folder / "disk" / "data"
        #: The same file system as seen from here.
        self.seen = Path(f"/proc/{holder}/root{folder}/disk")

    def command(self) -> list[str]:
        return ["nsenter", "-t", str(self._holder), "-m", *super().command()]

    def fill(self, leave: int = 0) -> None:
        """Take all room but `leave` bytes."""
        with (self.seen / "filler").open("ab") as file:
            size = 0
            while (room := self._room() - leave) > 0:
                # The gateway takes some meanwhile: the last pages are had one by one.
                step = max(4096, room // 2)
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step

    def _room(self) -> int:
        facts = os.statvfs(self.seen)
        return facts.f_bavail * facts.f_frsize

    def free(self) -> None:
        """Give it back."""
        (self.seen / "filler").unlink()


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[int | None]:
    """A tmpfs at `folder`/disk in a mount namespace of its own.

    Gives the process that holds it, None where the machine does not let us mount.
    """
    (folder / "disk").mkdir(parents=True)
    script = f"mount -t tmpfs -o size={size} tmpfs '{folder}/disk' && echo held && exec sleep 300"
    try:
        holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        yield None
        return
    try:
        assert holder.stdout is not None
        yield holder.pid if holder.stdout.readline() == "held\n" else None
    finally:
        holder.kill()
        holder.communicate()


def _told_by(path: str) -> None:
    def measure() -> Sequence[Space]:
        found = json.loads(Path(path).read_text())
        return [Space(path="/data", total=found["total"], free=found["free"])]

    disk_watch.measuring = lambda files, paths: measure


if __name__ == "__main__":
    _told_by(sys.argv.pop(1))
    main()
