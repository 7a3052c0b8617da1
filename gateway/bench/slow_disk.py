"""A gateway whose syncs take longer: what the bench of the store starts, and nobody else.

python -m gateway.bench.slow_disk SECONDS run ...
"""

from __future__ import annotations

import os
import sys
import time

from gateway.cli.main import main
from storage.files import RealFiles


def slow_down(seconds: float) -> None:
    """Have each sync of a file take so much longer."""

    def fdatasync(_: RealFiles, fd: int) -> None:
        os.fdatasync(fd)
        time.sleep(seconds)

    RealFiles.fdatasync = fdatasync  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    slow_down(float(sys.argv.pop(1)))
    main()
