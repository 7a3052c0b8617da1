"""The audit trail on real files: any change is found, a crash is told apart, the chain goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.audit.chain import GENESIS, key_id, read_line
from gateway.audit.trail import Trail, TrailSettings, head_of, head_path, numbered, trail_files
from gateway.audit.verify import Kind, Report, verify
from storage.files import RealFiles

FS = RealFiles()
KEY = b"k" * 32


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def now(self) -> int:
        self.ms += 1
        return self.ms


def body(number: int) -> bytes:
    return json.dumps({"event": "login.refused", "user": f"u{number}"}).encode()


def made(path: Path, key: bytes | None = None, clock: Clock | None = None, **more: int) -> Trail:
    told = TrailSettings(path=str(path), key=key, **more)  # type: ignore[arg-type]
    trail = Trail(FS, told, (clock or Clock()).now)
    trail.open()
    return trail


def checked(path: Path, key: bytes | None = None, **more: object) -> Report:
    keys = {} if key is None else {key_id(key): key}
    files, head = trail_files(FS, str(path)), head_of(FS, str(path), key)
    return verify(files, head, keys, **more)  # type: ignore[arg-type]


def kinds(report: Report) -> list[Kind]:
    return [found.kind for found in report.findings]


@pytest.fixture(params=[None, KEY], ids=["plain", "keyed"])
def key(request: pytest.FixtureRequest) -> bytes | None:
    found: bytes | None = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.jsonl"


def written(path: Path, key: bytes | None, lines: int = 20, **more: int) -> None:
    trail = made(path, key, **more)
    for number in range(lines):
        trail.append([body(number)])
    trail.close()


def test_what_is_written_is_sound_and_names_each_line_before(path: Path, key: bytes | None) -> None:
    written(path, key)
    report = checked(path, key)
    assert report.findings == []
    assert report.sound
    assert (report.files, report.lines, report.first, report.last) == (1, 21, 1, 21)
    lines = [read_line(raw) for raw in path.read_bytes().splitlines()]
    assert [one.seq for one in lines if one] == list(range(1, 22))
    assert [one.prev for one in lines if one] == [GENESIS, *(one.hash for one in lines[:-1] if one)]


def test_a_start_goes_on_in_the_file(path: Path, key: bytes | None) -> None:
    for _ in range(3):
        written(path, key, 2)
    report = checked(path, key)
    assert report.findings == []
    assert report.lines == 9


def test_files_are_rotated_and_the_oldest_go(path: Path, key: bytes | None) -> None:
    written(path, key, 60, file_bytes=1500, files_kept=3)
    names = [Path(file.name).name for file in trail_files(FS, str(path))]
    assert len(names) == 3
    assert names[-1] == "audit.jsonl"
    report = checked(path, key)
    assert report.findings == []
    assert report.first > 1
    # A file that goes without a line that says so is missed, at either end and in the middle.
    for name in names[:2]:
        moved = path.parent / name
        moved.rename(path.parent / "away")
        assert Kind.FILE_MISSING in kinds(checked(path, key)), name
        (path.parent / "away").rename(moved)
    path.rename(path.parent / "away")
    found = kinds(checked(path, key))
    assert Kind.CUT in found
    assert Kind.FILE_MISSING in found


def test_a_file_is_full_by_age(path: Path) -> None:
    clock = Clock()
    trail = made(path, clock=clock, file_ms=60_000)
    trail.append([body(1)])
    assert len(trail_files(FS, str(path))) == 1
    clock.ms += 60_000
    trail.append([body(2)])
    trail.close()
    assert len(trail_files(FS, str(path))) == 2
    assert checked(path).findings == []


WHOLE: dict[bytes | None, bytes] = {}


@pytest.fixture(scope="module", autouse=True)
def trails(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trails whose every byte is changed below."""
    for one in (None, KEY):
        folder = tmp_path_factory.mktemp("whole")
        written(folder / "audit.jsonl", one, 6)
        WHOLE[one] = (folder / "audit.jsonl").read_bytes()
        FOLDERS[one] = folder
    return


FOLDERS: dict[bytes | None, Path] = {}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), keyed=st.booleans())
def test_any_change_of_any_byte_is_found(data: st.DataObject, keyed: bool) -> None:
    key = KEY if keyed else None
    folder, whole = FOLDERS[key], WHOLE[key]
    path = folder / "audit.jsonl"
    at = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda one: one != whole[at]))
    path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
    assert not checked(path, key).sound, (at, value)
    path.write_bytes(whole)
    assert checked(path, key).sound


@settings(max_examples=100, deadline=None)
@given(data=st.data(), keyed=st.booleans())
def test_any_change_of_the_head_is_found(data: st.DataObject, keyed: bool) -> None:
    key = KEY if keyed else None
    path = FOLDERS[key] / "audit.jsonl"
    head = Path(head_path(str(path)))
    whole = head.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda one: one != whole[at]))
    head.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
    found = checked(path, key)
    head.write_bytes(whole)
    assert not found.sound, (at, value)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), keyed=st.booleans())
def test_lines_removed_swapped_or_cut_are_found(data: st.DataObject, keyed: bool) -> None:
    key = KEY if keyed else None
    path, whole = FOLDERS[key] / "audit.jsonl", WHOLE[key]
    lines = whole.splitlines(keepends=True)
    order = data.draw(
        st.lists(st.sampled_from(range(len(lines))), min_size=0, max_size=len(lines) + 1).filter(
            lambda taken: taken != list(range(len(lines)))
        )
    )
    cut = data.draw(st.integers(0, len(whole) - 1))
    for changed in (b"".join(lines[n] for n in order), whole[:cut], whole[cut:] if cut else b""):
        path.write_bytes(changed)
        found = checked(path, key)
        path.write_bytes(whole)
        assert not found.sound, (order, cut)


def test_each_tampering_has_its_name(path: Path, key: bytes | None) -> None:
    written(path, key)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    changed = whole.replace(b'"u7"', b'"u6"')
    for bytes_now, kind, line in (
        (changed, Kind.CHANGED, 9),
        (b"".join(lines[:5] + lines[6:]), Kind.REMOVED, 6),
        (b"".join(lines[:-2]), Kind.CUT, 0),
        (b"".join([*lines[:5], lines[6], lines[5], *lines[7:]]), Kind.REORDERED, 7),
    ):
        path.write_bytes(bytes_now)
        report = checked(path, key)
        assert kind in kinds(report), report.findings
        assert line in [f.line for f in report.findings if f.kind is kind], report.findings
    path.write_bytes(whole)
    Path(head_path(str(path))).unlink()
    assert kinds(checked(path, key)) == [Kind.HEAD_MISSING]


def test_without_the_key_nobody_can_seal_lines_again(path: Path, tmp_path: Path) -> None:
    """Whoever has the disk writes a trail of his own, with a head: only the key tells."""
    written(path, KEY, 5)
    forged = tmp_path / "forged" / "audit.jsonl"
    written(forged, None, 4)
    shutil.copy(forged, path)
    shutil.copy(head_path(str(forged)), head_path(str(path)))
    assert checked(path).sound  # without the key there is nothing to be seen
    assert {Kind.HEAD_CHANGED, Kind.NO_KEY} <= set(kinds(checked(path, KEY)))
    other = tmp_path / "other" / "audit.jsonl"
    written(other, b"x" * 32, 4)
    assert {Kind.HEAD_CHANGED, Kind.NO_KEY} <= set(kinds(checked(other, KEY)))


def test_a_whole_trail_made_anew_is_told_by_a_line_that_was_seen(path: Path) -> None:
    written(path, None, 5)
    seen = checked(path)
    shutil.rmtree(path.parent)
    clock = Clock()
    clock.ms += 1000  # it is not the same work twice
    anew = made(path, clock=clock)
    anew.append([body(number) for number in range(9)])
    anew.close()
    assert checked(path).sound
    assert kinds(checked(path, seen={seen.last: seen.last_hash})) == [Kind.NOT_SEEN]
    now = checked(path)
    assert checked(path, seen={now.last: now.last_hash}).sound


@pytest.mark.parametrize("torn", [b'{"seq":23,"pr', b"\0" * 700, b"x\n\n\0y", b"{}\n"])
def test_what_a_crash_has_torn_is_told_apart_and_the_chain_goes_on(
    path: Path, key: bytes | None, torn: bytes
) -> None:
    written(path, key)
    with path.open("ab") as file:
        file.write(torn)
    if not torn.endswith(b"\n"):
        last = checked(path, key).findings[-1]
        assert last.kind in (Kind.TORN, Kind.CHANGED)
    written(path, key, 3)
    report = checked(path, key)
    assert kinds(report) == [Kind.TORN]
    assert report.sound
    assert report.last == 25
    # And nobody can say afterwards that more was torn, or something else.
    whole = path.read_bytes()
    path.write_bytes(whole.replace(torn, torn[::-1], 1) if torn != torn[::-1] else whole[:-1])
    assert not checked(path, key).sound


def test_a_start_blesses_no_tampering(path: Path, key: bytes | None) -> None:
    written(path, key)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:12]))
    written(path, key, 3)
    report = checked(path, key)
    assert {Kind.FAULT_TOLD, Kind.REMOVED} & set(kinds(report))
    assert not report.sound
    assert [Path(f.name).name for f in trail_files(FS, str(path))] == [
        "audit.jsonl.000001",
        "audit.jsonl",
    ]
    trail = made(path, key)  # told once; the next start has nothing to find
    assert trail.fault == ""
    trail.close()


def test_a_start_finds_files_gone(path: Path, key: bytes | None) -> None:
    written(path, key)
    path.unlink()
    trail = made(path, key)
    assert "missing" in trail.fault
    trail.close()
    assert {Kind.FILE_MISSING, Kind.FAULT_TOLD} <= set(kinds(checked(path, key)))


def test_another_key_begins_another_file(path: Path) -> None:
    written(path, None, 3)
    written(path, KEY, 3)
    other = b"o" * 32
    written(path, other, 3)
    files = trail_files(FS, str(path))
    assert len(files) == 3
    head = head_of(FS, str(path), other)
    keys = {key_id(KEY): KEY, key_id(other): other}
    assert verify(files, head, keys).findings == []
    assert kinds(verify(files, head, {key_id(other): other})) == [Kind.NO_KEY]


class Failing(RealFiles):
    """Fails the calls that it is told to fail."""

    def __init__(self) -> None:
        self.left = -1

    def _count(self) -> None:
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._count()
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self._count()
        super().fdatasync(fd)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        if write:
            self._count()
        return super().open(path, create=create, write=write)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


@pytest.mark.parametrize("lasting", [1, 3])
def test_a_disk_that_fails_at_any_call_costs_no_line_and_no_chain(path: Path, lasting: int) -> None:
    for fails_at in range(60):
        fs = Failing()
        told = TrailSettings(path=str(path), file_bytes=900, files_kept=3)
        trail = Trail(fs, told, Clock().now)
        trail.open()
        fs.left = fails_at
        failed = 0
        for number in range(12):
            bodies = [body(number)]
            while True:
                try:
                    trail.append(bodies)
                    trail.sync()
                    break
                except OSError:
                    failed += 1
                    bodies = []
                    if failed >= lasting:
                        fs.left = -1
        trail.close()
        assert failed or fails_at > 40
        report = checked(path)
        assert report.findings == [], (fails_at, report.findings)
        lines = [read_line(r) for f in trail_files(FS, str(path)) for r in f.read().splitlines()]
        users = [one.facts["user"] for one in lines if one and "user" in one.facts]
        assert users == [f"u{n}" for n in range(12)][-len(users) :]
        shutil.rmtree(path.parent)


def test_numbered_names_sort(path: Path) -> None:
    assert numbered(str(path), 7).endswith(".000007")
