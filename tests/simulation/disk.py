"""A disk that keeps only what it was told to keep, and lies in the ways that disks do.

Each file has what the system shows (`cache`) and what the device holds (`device`). A write marks
sectors dirty, with every content that they had since the last sync; a sync moves them to the
device. When the power goes, each dirty sector is found as it was, or with any of those contents,
and a file that grew has its old or its new size. Operations on names are kept in a list until the
directory is synced; of those, any that do not build on a lost one may be found.

`kill` is the milder end: the process dies, the system goes on and shows all that was written.

Everything that can be chosen is chosen by `chance`; the same seed gives the same run.
"""

from __future__ import annotations

import errno
import hashlib
import random
from collections import deque
from collections.abc import Callable

SECTOR = 512
#: Calls that change something or promise something; each is a point where a crash can come.
EVENTS = 200


class Crash(BaseException):
    """The machine, or the process, went off in the middle of a call.

    Not an Exception: nothing in the code under test may catch it.
    """


class Node:
    """One file's bytes."""

    __slots__ = ("cache", "device", "dirty", "diverged")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.device = bytearray()
        self.dirty: dict[int, list[bytes]] = {}  # sector -> contents since the last sync
        self.diverged = False  # clean sectors of the cache may differ from the device

    def clone(self) -> Node:
        other = Node()
        other.cache = bytearray(self.cache)
        other.device = bytearray(self.device)
        other.dirty = {at: list(versions) for at, versions in self.dirty.items()}
        other.diverged = self.diverged
        return other

    def write(self, data: bytes, offset: int) -> None:
        if not data:
            return
        cache = self.cache
        if offset > len(cache):
            cache.extend(bytes(offset - len(cache)))
        end = offset + len(data)
        cache[offset:end] = data
        for sector in range(offset // SECTOR, (end + SECTOR - 1) // SECTOR):
            part = bytes(cache[sector * SECTOR : (sector + 1) * SECTOR])
            self.dirty.setdefault(sector, []).append(part)

    def truncate(self, size: int) -> None:
        if size > len(self.cache):
            self.cache.extend(bytes(size - len(self.cache)))
            return
        del self.cache[size:]
        self.dirty = {at: versions for at, versions in self.dirty.items() if at * SECTOR < size}

    def sync(self) -> None:
        self._resize(len(self.cache))
        for sector, versions in self.dirty.items():
            self._put(sector, versions[-1])
        self.dirty.clear()

    def fail_sync(self, *, revert: bool) -> None:
        """The dirty sectors are lost and clean from now on; the cache shows them, or the old."""
        self._resize(len(self.cache))
        if revert:
            for sector in self.dirty:
                start = sector * SECTOR
                self.cache[start : start + SECTOR] = self.device[start : start + SECTOR]
        self.dirty.clear()
        self.diverged = True

    def lose_power(self, chance: random.Random) -> None:
        old, new = len(self.device), len(self.cache)
        if old != new:
            self._resize(chance.choice([old, new]))
        # Most crashes find all, nothing, or a fair part of it; each teaches something else.
        keep = chance.choice([0.0, 0.5, 0.9, 1.0])
        for sector, versions in self.dirty.items():
            if chance.random() < keep and sector * SECTOR < len(self.device):
                self._put(sector, chance.choice(versions) if len(versions) > 1 else versions[0])
        self.dirty.clear()
        self.cache = bytearray(self.device)
        self.diverged = False

    def drop_cache(self) -> None:
        if self.diverged:
            self.cache = bytearray(self.device)
            for sector, versions in self.dirty.items():
                start = sector * SECTOR
                self.cache[start : start + len(versions[-1])] = versions[-1]
            self.diverged = bool(self.dirty)

    def _resize(self, size: int) -> None:
        if size < len(self.device):
            del self.device[size:]
        else:
            self.device.extend(bytes(size - len(self.device)))

    def _put(self, sector: int, content: bytes) -> None:
        start = sector * SECTOR
        content = content[: len(self.device) - start]
        self.device[start : start + len(content)] = content


class Log(deque[str]):
    """The last events; `trace` is of all of them: two runs of one seed have the same."""

    def __init__(self) -> None:
        super().__init__(maxlen=EVENTS)
        self.trace = hashlib.blake2b(digest_size=16)

    def append(self, text: str, /) -> None:
        self.trace.update(text.encode())
        super().append(text)


class SimDisk:
    """A `storage.files.FileSystem`; see the module text.

    `calls` counts the calls that change or promise something. The one numbered `crash_at` is cut
    short. `before` is called with each of them, before it does anything.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.nodes: dict[int, Node] = {}
        self.names: dict[str, int] = {}
        self.durable_names: dict[str, int] = {}
        self.unsynced: list[tuple[str, str, str]] = []  # ("create" | "unlink" | "rename", a, b)
        self.fds: dict[int, int] = {}
        self.log = Log()
        self.calls = 0
        self.crash_at = -1
        self.dead = False
        self.before: Callable[[str], None] | None = None
        self.capacity: int | None = None
        self.sync_faults = 0  # the syncs to come until one fails; 0: none will
        self.read_faults = 0
        self.failed_syncs = 0
        self._next = 3

    # ---- what the world does to it

    def clone(self, chance: random.Random) -> SimDisk:
        """Return the same disk for another fate."""
        other = SimDisk(chance)
        other.nodes = {number: node.clone() for number, node in self.nodes.items()}
        other.names = dict(self.names)
        other.durable_names = dict(self.durable_names)
        other.unsynced = list(self.unsynced)
        other._next = self._next
        return other

    def lose_power(self) -> None:
        """Make of it what is found after the power came back."""
        self._lose_names()
        for node in self.nodes.values():
            node.lose_power(self.chance)
        self._forget_unnamed()
        self.boot()

    def boot(self) -> None:
        """A new process begins, after `lose_power` or a mere kill."""
        self.fds.clear()
        self.dead = False
        self.crash_at = -1
        self.sync_faults = self.read_faults = 0

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Change one bit of what the device holds."""
        node = self.nodes[self.names[path]]
        node.device[offset] ^= 1 << bit
        node.diverged = True

    def _lose_names(self) -> None:
        keep = self.chance.choice([0.0, 0.5, 1.0])
        names = dict(self.durable_names)
        lost: set[str] = set()
        for what, a, b in self.unsynced:
            if a in lost or b in lost or self.chance.random() >= keep:
                lost.update((a, b))
                continue
            if what == "create":
                names[a] = int(b)
            elif what == "unlink":
                names.pop(a, None)
            else:
                names[b] = names.pop(a)
        self.names = names
        self.durable_names = dict(names)
        self.unsynced = []

    def _forget_unnamed(self) -> None:
        alive = set(self.names.values())
        self.nodes = {number: node for number, node in self.nodes.items() if number in alive}

    def _enter(self, what: str) -> bool:
        """Count a call; returns whether it is the one that is cut short."""
        if self.dead:
            raise Crash
        self.calls += 1
        self.log.append(f"{self.calls:5d} {what}")
        if self.before is not None:
            self.before(what)
        if self.calls != self.crash_at:
            return False
        self.dead = True
        self.log.append("      -- crash in this call")
        if self.chance.random() < 0.5:
            raise Crash  # before it did anything
        return True

    def _used(self) -> int:
        return sum(len(self.nodes[number].cache) for number in set(self.names.values()))

    # ---- the port

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        if create:
            cut = self._enter(f"create {path}")
            if path in self.names:
                raise FileExistsError(path)
            self._next += 1
            self.nodes[self._next] = Node()
            self.names[path] = self._next
            self.unsynced.append(("create", path, str(self._next)))
            if cut:
                raise Crash
        if path not in self.names:
            raise FileNotFoundError(path)
        self._next += 1
        self.fds[self._next] = self.names[path]
        return self._next

    def close(self, fd: int) -> None:
        if not self.dead:
            del self.fds[fd]

    def _node(self, fd: int) -> Node:
        return self.nodes[self.fds[fd]]

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        if self.read_faults:
            self.read_faults -= 1
            if not self.read_faults:
                raise OSError(errno.EIO, "simulated: cannot read")
        return bytes(self._node(fd).cache[offset : offset + count])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        cut = self._enter(f"write {self._name(fd)} {offset}+{len(data)}")
        node = self._node(fd)
        if cut:
            # Within a sector a write is whole or not there, for the device and for the system.
            end = offset + self.chance.randint(0, len(data))
            end = offset + len(data) if self.chance.random() < 0.3 else end - end % SECTOR
            node.write(data[: max(end - offset, 0)], offset)
            raise Crash
        grown = offset + len(data) - len(node.cache)
        if self.capacity is not None and grown > 0 and self._used() + grown > self.capacity:
            raise OSError(errno.ENOSPC, "simulated: no room")
        node.write(data, offset)
        return len(data)

    def fdatasync(self, fd: int) -> None:
        cut = self._enter(f"sync {self._name(fd)}")
        node = self._node(fd)
        if self.sync_faults:
            self.sync_faults -= 1
            if not self.sync_faults:
                self.failed_syncs += 1
                node.fail_sync(revert=self.chance.random() < 0.5)
                raise OSError(errno.EIO, "simulated: cannot sync")
        node.sync()
        if cut:
            raise Crash

    fsync = fdatasync

    def allocate(self, fd: int, size: int) -> None:
        cut = self._enter(f"allocate {self._name(fd)} {size}")
        node = self._node(fd)
        grown = size - len(node.cache)
        if self.capacity is not None and grown > 0 and self._used() + grown > self.capacity:
            raise OSError(errno.ENOSPC, "simulated: no room")
        if grown > 0:
            node.cache.extend(bytes(grown))
        if cut:
            raise Crash

    def size(self, fd: int) -> int:
        return len(self._node(fd).cache)

    def truncate(self, fd: int, size: int) -> None:
        cut = self._enter(f"truncate {self._name(fd)} {size}")
        self._node(fd).truncate(size)
        if cut:
            raise Crash

    def rename(self, source: str, target: str) -> None:
        cut = self._enter(f"rename {source} {target}")
        if source not in self.names:
            raise FileNotFoundError(source)
        self.names[target] = self.names.pop(source)
        self.unsynced.append(("rename", source, target))
        if cut:
            raise Crash

    def unlink(self, path: str) -> None:
        cut = self._enter(f"unlink {path}")
        if path not in self.names:
            raise FileNotFoundError(path)
        del self.names[path]
        self.unsynced.append(("unlink", path, path))
        if cut:
            raise Crash

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/"
        below = (n[len(prefix) :] for n in self.names if n.startswith(prefix))
        return sorted(name for name in below if "/" not in name)

    def mkdir(self, path: str) -> None:
        """There is one directory, and it is there."""

    def fsync_dir(self, path: str) -> None:
        cut = self._enter(f"sync directory {path}")
        prefix = path + "/"
        done = [change for change in self.unsynced if change[1].startswith(prefix)]
        self.unsynced = [change for change in self.unsynced if change not in done]
        for what, a, b in done:
            if what == "create":
                self.durable_names[a] = int(b)
            elif what == "unlink":
                self.durable_names.pop(a, None)
            else:
                self.durable_names[b] = self.durable_names.pop(a)
        if cut:
            raise Crash

    def exists(self, path: str) -> bool:
        return path in self.names

    def free_bytes(self, path: str) -> int:
        return (1 << 40) if self.capacity is None else self.capacity - self._used()

    def drop_cache(self, fd: int) -> None:
        self._node(fd).drop_cache()

    def _name(self, fd: int) -> str:
        number = self.fds[fd]
        return next((n for n, held in self.names.items() if held == number), f"#{number}")
