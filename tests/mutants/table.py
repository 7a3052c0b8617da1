"""The planted bugs: what a change to the journal could break without a unit test noticing."""

from __future__ import annotations

from tests.mutants.plant import Mutant

MUTANTS = (
    Mutant(
        "no fdatasync", "storage.segments:Segments._sync", "    self._fs.fdatasync(self._fd)\n", ""
    ),
    Mutant(
        "reported when handed over",
        "storage.journal:Journal.flush",
        "    self._writer.write(batch)\n",
        "    self._writer.write(batch)\n    self.on_durable(batch.number)\n",
    ),
    Mutant(
        "reported before the sync",
        "storage.writer:DiskWork.write",
        "    try:\n",
        "    self._post(lambda: self._journal.written(batch, 0))\n    try:\n",
    ),
    Mutant(
        "reported although the sync failed",
        "storage.writer:DiskWork.write",
        "        self._fail(error)\n        return\n",
        "        written = 0\n",
    ),
    Mutant(
        "payload sum not checked",
        "storage.recovery:SegmentFile.payload",
        "return payload if zlib.crc32(payload, self._salt(offset)) == head.payload_crc else None",
        "return payload",
    ),
    Mutant(
        "batch header sum not checked",
        "storage.record:decode_batch_head",
        "    if _CRC.unpack_from(data, offset + _BATCH.size)[0] != zlib.crc32(\n"
        "        data[offset : offset + _BATCH.size], salt\n"
        "    ):\n"
        "        return None\n",
        "",
    ),
    Mutant(
        "segment header sum not checked",
        "storage.record:decode_segment_header",
        "        return None\n    _, version",
        "        pass\n    _, version",
    ),
    Mutant(
        "numbers not compared over segments",
        "storage.recovery:_check_first",
        "elif first > expected:",
        "elif False:",
    ),
    Mutant(
        "numbers not compared in a segment",
        "storage.recovery:_read_segment",
        "if head.number != expected:",
        "if False:",
    ),
    Mutant("stale salt accepted", "storage.record:salt_of", "_SALT.pack(uuid, offset)", "b''"),
    Mutant(
        "what follows a broken batch not looked at",
        "storage.recovery:_judge_tail",
        "if later.synced > found.ticket:",
        "if False:",
    ),
    Mutant(
        "torn batch counted as read",
        "storage.recovery:_judge_tail",
        "        found.clean = False\n",
        "        found.clean = False\n        found.ticket = head.number\n",
    ),
    Mutant(
        "segment freed while something lives",
        "storage.segment_index:SegmentIndex.reclaimable",
        "self.live[segment] > 0",
        "self.live[segment] > 1",
    ),
    Mutant(
        "removal counted when written, not when synced",
        "storage.rotation:Rotation.place",
        "    self.index.add_batch(batch)\n",
        "    self.index.add_batch(batch)\n    self.index.settle_batch(batch)\n",
    ),
    Mutant(
        "segment of removals freed before what they remove",
        "storage.segment_index:SegmentIndex.reclaimable",
        "            break\n",
        "            continue\n",
    ),
    Mutant(
        "segments freed newest first",
        "storage.segments:Segments.delete",
        "for number in segments:",
        "for number in reversed(segments):",
    ),
    Mutant(
        "segments freed up to the one being filled",
        "storage.rotation:Rotation.take_empty",
        "self.index.reclaimable(self._synced_segment)",
        "self.index.reclaimable(self.segment)",
    ),
    Mutant(
        "directory not synced after a segment is named",
        "storage.segments:Segments._open",
        "    self._fs.fsync_dir(self._directory)\n",
        "",
    ),
    Mutant(
        "segment header not synced",
        "storage.segments:Segments._open",
        "    self._fs.fsync(self._fd)\n",
        "",
    ),
    Mutant(
        "directory not synced after a segment is freed",
        "storage.segments:Segments.delete",
        "        self._fs.fsync_dir(self._directory)\n",
        "",
    ),
    Mutant(
        "directory not synced after a replace",
        "storage.files:durable_replace",
        '    fs.fsync_dir(posixpath.dirname(path) or ".")\n',
        "",
    ),
    Mutant(
        "replaced content not synced",
        "storage.files:durable_replace",
        "        fs.fsync(fd)\n",
        "",
    ),
    Mutant(
        "names of a killed process not synced",
        "gateway.store.persistence:open_journal",
        "    fs.fsync_dir(directory)\n",
        "",
    ),
    Mutant(
        "bytes of a killed process not synced",
        "storage.files:settle",
        "        fs.fdatasync(fd)\n",
        "",
    ),
    Mutant(
        "cache believed after a failed sync",
        "storage.files:settle",
        "        fs.drop_cache(fd)\n",
        "",
    ),
    Mutant(
        "a clean stop counts twice",
        "gateway.store.persistence:_mark_begun",
        "        found.clean = False\n",
        "        pass\n",
    ),
    Mutant(
        "suspect start not written down",
        "storage.batch:Batch.encode",
        "[SUSPECT_RECORD] if self.suspect else []",
        "[]",
    ),
    Mutant(
        "clean stop not written down",
        "storage.batch:Batch.encode",
        "        parts.append(CLEAN_RECORD)\n",
        "        pass\n",
    ),
    Mutant(
        "live count one too low",
        "storage.segment_index:SegmentIndex.added",
        "newest.live += stored",
        "newest.live += stored - 1",
    ),
    Mutant(
        "live count one too high",
        "storage.segment_index:SegmentIndex._take",
        "    self.live[extent.segment] -= gone\n",
        "    self.live[extent.segment] -= max(gone - 1, 1)\n",
    ),
    Mutant(
        "a range over segments counted in the first",
        "storage.segment_index:SegmentIndex.removed",
        "if last <= extents[at].last:",
        "if True:",
    ),
    Mutant(
        "a deleted queue still counts",
        "storage.journal:Journal.forget",
        "    self._open.forgotten.append(queue_id)\n",
        "",
    ),
    Mutant(
        "a deleted queue counts again after a restart",
        "gateway.store.persistence:open_journal",
        "if queue_id in alive:",
        "if True:",
    ),
    Mutant(
        "removal of what was written before is cancelled",
        "storage.batch:Batch.remove",
        "if first >= start:",
        "if True:",
    ),
    Mutant(
        "removal over two batches forgets the first",
        "storage.batch:Batch.remove",
        "        last = start - 1\n",
        "        return\n",
    ),
    Mutant(
        "cancelled for one queue, gone for all",
        "storage.batch:Batch._surviving_many",
        "        if sum(high - low + 1 for low, high in hits) == count:\n            continue\n",
        "        if sum(high - low + 1 for low, high in hits) == count:\n            return []\n",
    ),
    Mutant(
        "part of a fan-out cancelled without a removal",
        "storage.batch:Batch._surviving_many",
        "            _extend(self.removes, queue_id, low, high)\n",
        "",
    ),
    Mutant(
        "cancelled messages keep their place",
        "storage.batch:Batch._surviving",
        "at = max(at, high + 1)",
        "at = max(at, high)",
    ),
    Mutant(
        "transaction cut by a full batch",
        "storage.journal:Journal.append",
        " and batch.state is not _ATOMIC",
        "",
    ),
    Mutant(
        "transaction cut by a flush",
        "storage.journal:Journal._fix_next",
        "    if batch.state is _ATOMIC:\n        return False\n",
        "",
    ),
    Mutant(
        "segment begins without definitions",
        "storage.rotation:Rotation._roll",
        "    batch.add_snapshot(self.snapshot())\n",
        "",
    ),
    Mutant(
        "definitions of later batches at a segment's begin",
        "storage.journal:Journal.flush",
        "    self._covering.handed_over(batch)\n",
        "    self._covering.handed_over(batch)\n"
        "    if any(batch.notes):\n"
        "        batch.notes += self.rotation.snapshot()\n"
        "        batch.bytes_bound += 1 << 20\n",
    ),
    Mutant(
        "room of cancelled bodies not given back twice",
        "storage.batch:Batch.settle_cancelled",
        "before += run_bound(run, size)",
        "before += 2 * run_bound(run, size)",
    ),
    Mutant(
        "an old segment is written on",
        "gateway.store.persistence:open_journal",
        "next_segment=found.segment + 1",
        "next_segment=found.segment",
    ),
    Mutant(
        "ticket of the torn batch skipped",
        "gateway.store.persistence:open_journal",
        "next_ticket=found.ticket + 1",
        "next_ticket=found.ticket + 1 + (found.torn_bytes > 0)",
    ),
    Mutant(
        "removals before adds at recovery",
        "storage.batch:Batch.encode",
        "parts += [encode_remove(",
        "parts[:0] = [encode_remove(",
    ),
    Mutant(
        "flags of a return lost",
        "storage.recovery:apply_payload",
        "held[seq].flags = flags",
        "pass",
    ),
    Mutant(
        "what took another's place is told a batch before the end of that is on disk",
        "storage.replacements:Replacements.free",
        "ticket > synced",
        "ticket > synced + 1",
    ),
    Mutant(
        "told before it is settled",
        "storage.journal:Journal.written",
        "    self.rotation.written(batch)\n",
        "    self._tell(batch.number)\n    self.rotation.written(batch)\n",
    ),
    Mutant(
        "turns that were set aside are written late",
        "storage.overtaking:Overtaking.gather",
        "    if self._aside.batches:\n",
        "    if False:\n",
    ),
    Mutant(
        "stop before all is written",
        "storage.journal:Journal.written",
        "elif self._busy is None:",
        "else:",
    ),
    Mutant(
        "copies counted before they are durable",
        "storage.compaction:Compaction._copy",
        "batch.move(queue_id, first, first + count - 1, size, self.segment)",
        "self._index.moved(queue_id, first, first + count - 1, size,"
        " source=self.segment, segment=max(self._index.live))",
    ),
    Mutant(
        "what is removed already is copied",
        "storage.compaction:Compaction._copy",
        "ranges = without_ranges(ranges, gone.get(queue_id, []))",
        "pass",
    ),
    Mutant(
        "what is gone is copied",
        "storage.segment_index:SegmentIndex.alive",
        "ranges += without_ranges([(low, high)], extent.join())",
        "ranges += [(low, high)]",
    ),
    Mutant(
        "copies behind the removals",
        "storage.batch:Batch.encode",
        "    if self.kind is Kind.STOP:\n",
        "    for run in self.copies:\n        encode_add(run, parts)\n"
        "    if self.kind is Kind.STOP:\n",
    ),
    Mutant(
        "rest of a run is not copied",
        "storage.compaction:Compaction.fill",
        "self._runs.appendleft((ticket, cut_run(run, most, len(run.bodies))))",
        "pass",
    ),
    Mutant(
        "a copy has the old flags",
        "storage.compaction:Compaction._put",
        "flags, due = self.changes.apply(queue_id, seq, was, due)",
        "flags = was",
    ),
    Mutant(
        "a copy has others' flags",
        "storage.compaction:Compaction._own",
        "own[place] = {seq - first for seq in touched}",
        "own[place] = set()",
    ),
    Mutant(
        "new flags forgotten at a start",
        "gateway.store.persistence:_index",
        "changes.count(queue_id, [(seq, stored.flags | seen)])",
        "pass",
    ),
    Mutant(
        "new due times forgotten at a start",
        "gateway.store.persistence:_index",
        "changes.postpone(queue_id, [(seq, stored.due)])",
        "pass",
    ),
    Mutant(
        "a copy was never seen",
        "storage.compaction:Compaction._put",
        "if seen:",
        "if False:",
    ),
    Mutant(
        "a copy is accepted anew",
        "storage.compaction:Compaction._put",
        "part.expires, part.accepted_ms",
        "part.expires, 0",
    ),
    Mutant(
        "a copy never expires",
        "storage.compaction:Compaction._put",
        "part.expires, part.accepted_ms",
        "0, part.accepted_ms",
    ),
    Mutant(
        "a copy for the first queue only",
        "storage.compaction:Compaction._put",
        "for place in places]",
        "for place in places[:1]]",
    ),
    Mutant(
        "places of copies not sorted at a start",
        "gateway.store.persistence:_index",
        "for seq in sorted(held):",
        "for seq in held:",
    ),
    Mutant(
        "what is removed while it is copied counts as damage",
        "storage.compaction:Compaction.choose",
        "if synced < self._settled_at:",
        "if False:",
    ),
    Mutant(
        "a half empty chain stays",
        "storage.compaction:CompactionRule.wants",
        "live * 100 < used * self.percentage",
        "not live",
    ),
)
