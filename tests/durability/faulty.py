"""A gateway process with a fault of its surroundings: code that runs in it before it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.trial.scratch import ScratchGateway

#: `ahead()` is what a file says, in seconds; the wall clock of the process shows that much more.
WALL = """
import time, pathlib
_time, _time_ns, _file = time.time, time.time_ns, pathlib.Path({file!r})
def ahead():
    try:
        return int(_file.read_text())
    except (FileNotFoundError, ValueError):
        return 0
time.time = lambda: _time() + ahead()
time.time_ns = lambda: _time_ns() + ahead() * 1_000_000_000
"""

#: While the file is there a sync takes until it is gone.
HANG = """
import os, time
from storage.files import RealFiles
def fdatasync(self, fd):
    while os.path.exists({file!r}):
        time.sleep(0.05)
    os.fdatasync(fd)
RealFiles.fdatasync = fdatasync
"""

#: While the file is there, what is read of files whose path has its text in it is an EIO.
UNREADABLE = """
import errno, os, pathlib
from storage.files import RealFiles
_pread, _fault = RealFiles.pread, pathlib.Path({file!r})
def pread(self, fd, count, offset):
    if _fault.exists() and _fault.read_text() in os.readlink(f"/proc/self/fd/{{fd}}"):
        raise OSError(errno.EIO, "Input/output error")
    return _pread(self, fd, count, offset)
RealFiles.pread = pread
"""

#: Pages are read by threads only: the process ends when its reactor's reads of one.
ELSEWHERE = """
import os, traceback
from storage.files import RealFiles
from twisted.python.threadable import isInIOThread
_page_open, _page_pread, _page_fds = RealFiles.open, RealFiles.pread, set()
def page_open(self, path, **how):
    fd = _page_open(self, path, **how)
    (_page_fds.add if path.endswith(".page") else _page_fds.discard)(fd)
    return fd
def page_pread(self, fd, count, offset):
    if fd in _page_fds and isInIOThread():
        traceback.print_stack()
        os._exit(70)
    return _page_pread(self, fd, count, offset)
RealFiles.open, RealFiles.pread = page_open, page_pread
"""

#: While the file is there, what it says is refused: an error, a call, and part of the path.
REFUSING = """
import errno, os, pathlib
from storage.files import RealFiles
_refused = pathlib.Path({file!r})
def refuse(name):
    real = getattr(RealFiles, name)
    def call(self, fd, *rest):
        if _refused.exists():
            error, called, part = _refused.read_text().split()
            if called == name and part in os.readlink(f"/proc/self/fd/{{fd}}"):
                raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
        return real(self, fd, *rest)
    setattr(RealFiles, name, call)
for name in ("pwrite", "fsync", "fdatasync"):
    refuse(name)
"""

#: A disk that hangs is given up after 2 s, and what waits for it then after 4 s.
IMPATIENT = """
import gateway.store.hanging, gateway.assembly.service
gateway.store.hanging.FAIL_SECONDS = 2.0
gateway.assembly.service.FATAL_SECONDS = 4.0
"""

_MAIN = "from gateway.cli.main import main\nmain()\n"


class FaultyGateway(ScratchGateway):
    """See the module text; `switch` is a file that turns the fault on."""

    def __init__(
        self,
        folder: Path,
        *faults: str,
        settings: Sequence[str] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        super().__init__(folder, settings=settings, tls=tls)
        folder.mkdir(parents=True, exist_ok=True)
        self.switch = folder / "fault"
        self._code = "".join(fault.format(file=str(self.switch)) for fault in faults) + _MAIN

    def command(self) -> list[str]:
        given = super().command()
        return [sys.executable, "-c", self._code, *given[given.index("run") :]]

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")
