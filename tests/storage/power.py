"""Files in memory that can lose power: what was not synced may be there, not there, or torn."""

from __future__ import annotations

import random

SECTOR = 512


class PowerLossError(Exception):
    """The machine went off in the middle of an operation."""


class PowerFiles:
    """A `FileSystem` in memory that counts its changes and fails before the one numbered `fail_at`.

    With `error` it fails once with that error and goes on; else it loses power.
    """

    def __init__(self, fail_at: int = -1, error: OSError | None = None) -> None:
        self.fail_at = fail_at
        self.error = error
        self.changes = 0
        self.names: dict[str, int] = {}
        self.durable_names: dict[str, int] = {}
        self.now: dict[int, bytearray] = {}
        self.durable: dict[int, bytes] = {}
        self.open_files: dict[int, int] = {}
        self._next = 3

    def _change(self) -> None:
        if self.changes == self.fail_at:
            self.fail_at = -1
            raise self.error or PowerLossError
        self.changes += 1

    def lose_power(self, chance: random.Random) -> PowerFiles:
        """Return the files as they are found after the power came back."""
        after = PowerFiles()
        after._next = self._next
        for name in sorted(self.names.keys() | self.durable_names.keys()):
            old, new = self.durable_names.get(name), self.names.get(name)
            node = old if old == new else chance.choice([old, new])
            if node is not None:
                after.names[name] = after.durable_names[name] = node
                after.durable[node] = self._torn(node, chance)
                after.now[node] = bytearray(after.durable[node])
        return after

    def _torn(self, node: int, chance: random.Random) -> bytes:
        old, new = self.durable.get(node, b""), bytes(self.now[node])
        size = chance.choice([len(old), len(new)])
        found = bytearray(size)
        for at in range(0, size, SECTOR):
            source = chance.choice([old, new])
            part = source[at : min(at + SECTOR, size)]
            found[at : at + len(part)] = part
        return bytes(found)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        if create:
            self._change()
            if path in self.names:
                raise FileExistsError(path)
            self._next += 1
            self.names[path] = self._next
            self.now[self._next] = bytearray()
        if path not in self.names:
            raise FileNotFoundError(path)
        self._next += 1
        self.open_files[self._next] = self.names[path]
        return self._next

    def close(self, fd: int) -> None:
        del self.open_files[fd]

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return bytes(self.now[self.open_files[fd]][offset : offset + count])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._change()
        content = self.now[self.open_files[fd]]
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + len(data)] = data
        return len(data)

    def fsync(self, fd: int) -> None:
        self._change()
        node = self.open_files[fd]
        self.durable[node] = bytes(self.now[node])

    fdatasync = fsync

    def allocate(self, fd: int, size: int) -> None:
        content = self.now[self.open_files[fd]]
        content.extend(bytes(max(size - len(content), 0)))

    def size(self, fd: int) -> int:
        return len(self.now[self.open_files[fd]])

    def truncate(self, fd: int, size: int) -> None:
        self._change()
        del self.now[self.open_files[fd]][size:]

    def rename(self, source: str, target: str) -> None:
        self._change()
        self.names[target] = self.names.pop(source)

    def unlink(self, path: str) -> None:
        self._change()
        if path not in self.names:
            raise FileNotFoundError(path)
        del self.names[path]

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(n[len(prefix) :] for n in self.names if n.startswith(prefix))

    def mkdir(self, path: str) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        self._change()
        prefix = path + "/"
        kept = {n: i for n, i in self.durable_names.items() if not n.startswith(prefix)}
        self.durable_names = kept | {n: i for n, i in self.names.items() if n.startswith(prefix)}

    def exists(self, path: str) -> bool:
        return path in self.names

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def drop_cache(self, fd: int) -> None:
        pass
