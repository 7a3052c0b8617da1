"""Bugs planted in the core: paging, restarts, transactions, dead letters, rings, order, marks."""

from __future__ import annotations

from tests.mutants.plant import Mutant
from tests.simulation.core.world import run_core_seed


def _core(name: str, target: str, old: str, new: str, first: int = 0) -> Mutant:
    return Mutant(name, target, old, new, run_core_seed, first)


CORE_MUTANTS = (
    _core(
        "pages committed by a ticket of the process",
        "storage.rotation:Rotation.place",
        "        block.written_as = batch.written_as\n",
        "        pass\n",
    ),
    _core(
        "pages not synced before the batch that names them",
        "storage.writer:DiskWork.write",
        "            paged = self._pages.write(batch.pages)\n",
        "            later = batch.pages\n",
    ),
    _core(
        "a page written and not synced",
        "storage.pages:PageWriter._write_run",
        "        self._fs.fdatasync(page.fd)\n",
        "        pass\n",
    ),
    _core(
        "a new page is not synced",
        "storage.pages:PageWriter._write_run",
        "        self._fs.fsync(page.fd)\n",
        "        pass\n",
    ),
    _core(
        "the name of a new page is not synced",
        "storage.pages:PageWriter.write",
        "        self._fs.fsync_dir(self._directory)\n",
        "        pass\n",
    ),
    _core(
        "a page deleted before that is durable",
        "gateway.paging.paging:Paging.retire",
        "    self._doomed.append((ticket, page.number))\n",
        "    self._doomed.append((0, page.number))\n",
        first=435,
    ),
    _core(
        "pages of an ended stay deleted before that is durable",
        "gateway.broker.operations.pager:Pager._end",
        "self._ending.append((ticket,",
        "self._ending.append((0,",
        first=330,
    ),
    _core(
        "what goes to pages is overtaken by what stays in memory",
        "gateway.broker.operations.pager:Pager.pages",
        "    if address.paging is not None:\n        return True\n",
        "    if address.paging is not None:\n        return address.paging.live > 3\n",
    ),
    _core(
        "a number of a page used again",
        "gateway.store.paged_recovery:_next_page",
        "return max([definition.next_page, *(page + 1 for page in (*blocks, *dead))])",
        "return 1",
    ),
    _core(
        "a number of a queue on pages used again",
        "gateway.store.paged_recovery:ids_on_pages",
        "    for store in stores:\n",
        "    for store in ():\n",
        first=1_850,
    ),
    _core(
        "removed and moved in two batches",
        "gateway.broker.operations.effects:QueueEffects.gone",
        "    if why is Gone.EXPIRED or why is Gone.KILLED:\n",
        "    if why is Gone.EXPIRED:\n"
        "        ticket = self._let_go(queue, messages, size, why)\n"
        "        self._mover.move(queue, messages, why)\n"
        "    elif why is Gone.KILLED:\n",
        first=1_015,
    ),
    _core(
        "removals of paged messages not recorded",
        "gateway.paging.backlog:Backlog._finish_part",
        "    ticket = self._source.remove(self.queue, first, last)\n",
        "    ticket = 1\n",
    ),
    _core(
        "an acknowledgement out of order ends all before it",
        "gateway.paging.part:Part.finish",
        "low, high = max(first, self.floor), min(last, self.last)",
        "low, high = self.floor, min(last, self.last)",
    ),
    _core(
        "a removal reaches into the next life's blocks",
        "gateway.paging.restore:_remove",
        "end = bisect_right(blocks.tickets, ticket)",
        "end = len(blocks.tickets)",
    ),
    _core(
        "marks of pages forgotten with their segment",
        "gateway.paging.paging:Paging.definition",
        "        marks=marks,\n",
        "        marks=(),\n",
    ),
    _core(
        "delivery counts of paged messages forgotten with their segment",
        "gateway.paging.paging:Paging.definition",
        "        counts=counts,\n",
        "        counts=(),\n",
    ),
    _core(
        "delays of paged messages forgotten at a start",
        "gateway.store.paged_recovery:find_pages",
        "            postponed=found.postponed,\n",
        "",
        first=415,
    ),
    _core(
        "blocks of pages forgotten with their segment",
        "gateway.paging.paging:Paging.definition",
        "        pages={page.number: page.blocks for page in self.pages.values()},\n",
        "",
    ),
    _core(
        "a start on pages alone is not noted",
        "gateway.store.persistence:_mark_begun",
        "paged = found.pages or any(note.startswith(_PAGES_NOTE) for note in found.notes)",
        "paged = found.pages",
        first=4_375,
    ),
    _core(
        "page mode ends only where its own messages go",
        "gateway.broker.operations.effects:QueueEffects.gone",
        "    if self._pager.idle:\n",
        "    if False:\n",
    ),
    _core(
        "what was paged is never suspect",
        "gateway.paging.restore:_restore_page",
        "        page.suspect = number + 1\n",
        "        pass\n",
    ),
    _core(
        "a paged message is in the account of memory",
        "gateway.broker.operations.pager:Pager.finish",
        "return [m for m in messages if not m.flags & PAGED]",
        "return messages",
    ),
    _core(
        "one reads where the last one ended, not where it was finished",
        "gateway.paging.cursor:Cursor.go_on",
        "    self.next = following\n",
        "    self.next = following + 1\n",
    ),
    _core(
        "a transaction's sends outside its batch",
        "gateway.broker.transactions:Work.commit",
        "    self._core.begin_atomic()\n    try:\n"
        "        ticket = self._core.send_all(self._sends)\n",
        "    ticket = self._core.send_all(self._sends)\n    self._core.begin_atomic()\n    try:\n",
    ),
    _core(
        "a commit is seen before it is on disk",
        "gateway.queues.storing:Storing.add_run",
        "self._open or self.holding or ",
        "self._open or ",
    ),
    _core(
        "an end that the disk has to know of is told at once",
        "storage.overtaking:Overtaking.remove",
        "    if not whole:\n",
        "    if False:\n",
    ),
    _core(
        "a dead letter's end is told before that of what it was is on disk",
        "storage.replacements:Replacements.end",
        "            self._bound[queue_id] = batch.number\n",
        "            pass\n",
    ),
    _core(
        "what is half on disk is told to be gone for good",
        "storage.batch:Batch.remove",
        "    return False\n",
        "    return start is not None\n",
    ),
    _core(
        "what is held while the disk lags is overtaken at the change back",
        "gateway.queues.line:Line.store_first",
        "        self._leave_room()\n",
        "        self._leave_room()\n"
        "        if not (meanwhile or self.serialized):\n"
        "            self._tail = self.ready\n",
    ),
    _core(
        "queues that the disk made wait do so for ever",
        "gateway.broker.pressure.holds:Holds.store_first",
        "            queue.line.store_first(False)\n",
        "            pass\n",
    ),
    _core(
        "what stands for another is told to be gone a batch too early",
        "storage.replacements:Replacements.free",
        "    if ticket > synced:\n        return False\n"
        '    assert ticket <= synced, "free, and the disk still has what would come back"\n',
        "    if ticket > synced + 1:\n        return False\n",
    ),
    _core(
        "a batch lingers until somebody waits for it",
        "gateway.store.lingering:Linger.__call__",
        "        return self._now() < self._until\n",
        "        return True\n",
    ),
    _core(
        "a disk that stands is not blamed for it",
        "gateway.broker.pressure.lag:Lag._judge",
        "    if not self.waits and age >= self.limit:\n",
        "    if not self.waits and age >= 50 * self.limit:\n",
    ),
    _core(
        "each answer of the disk makes all that waits young again",
        "gateway.broker.pressure.lag:Lag.durable_up_to",
        "    while marks and marks[0][0] <= ticket:\n",
        "    while marks:\n",
    ),
    _core(
        "a disk that lags never keeps up again",
        "gateway.broker.pressure.lag:Lag._judge",
        "    elif self.waits and now - self._bad >= self._calm:\n",
        "    elif False:\n",
    ),
    _core(
        "senders that were there are not told that the disk lags",
        "gateway.broker.pressure.holds:Holds.store_first",
        "        address.version += 1\n",
        "        pass\n",
    ),
    _core(
        "what waits for a disk that lags never learns its ticket",
        "gateway.broker.pressure.holds:Holds.store_for",
        "if any(q.stores_first for q in queues)",
        "if any(q.serialized for q in queues)",
    ),
    _core(
        "a serialized queue hands out with the batch before",
        "gateway.queues.storing:Storing.let_out",
        "waiting[0][0] <= ticket",
        "waiting[0][0] <= ticket + 1",
    ),
    _core(
        "a rolled back acknowledgement counts no attempt",
        "gateway.broker.transactions:Work.rollback",
        "messages, True, False)",
        "messages, False, False)",
    ),
    _core(
        "a settlement does not make room for reading",
        "gateway.broker.operations.effects:QueueEffects._let_go",
        "    if queue.paged_count and queue.consumer_count:\n",
        "    if False:\n",
    ),
    _core(
        "what a selector gave back stays in front of its elders",
        "gateway.queues.searching:Ahead.put_back",
        "if not backlog.ahead:",
        "if True:",
        first=500,
    ),
    _core(
        "a selector looks for one turn",
        "gateway.queues.searching:Searching.end_pages",
        "        self.more = True\n",
        "        pass\n",
    ),
    _core(
        "what is lost is not recorded",
        "gateway.paging.restore:_give_up",
        "        paging.give_up(queue, count, why)\n",
        "        pass\n",
    ),
    _core(
        "a released message goes to the end",
        "gateway.queues.ready:Ready.put_back",
        "        level.appendleft(message)\n",
        "        level.append(message)\n",
    ),
    _core(
        "what has expired is delivered",
        "gateway.queues.sharing:Shares._sift",
        "if message.flags & EXPIRES and message.expires <= now_ms:",
        "if message.flags & EXPIRES and message.expires < now_ms - 30:",
    ),
    _core(
        "a ring's victim stays in the journal",
        "gateway.queues.ring:Ring.evict",
        "    self._leave(victims, Gone.REPLACED)\n",
        "    counts = self._leave.__self__.counts\n"
        "    counts.gone(len(victims), Gone.REPLACED)\n"
        "    counts.size_bytes -= sum(len(m.body) for m in victims)\n",
    ),
    _core(
        "a copy is charged for each queue",
        "gateway.broker.operations.shares:without_copies",
        "                count -= 1\n",
        "                pass\n",
    ),
    _core(
        "blocks grow over a batch",
        "gateway.store.persistence:JournalStore.page",
        "    if ticket != self._blocks_ticket:\n",
        "    if not self._blocks_ticket:\n",
    ),
    _core(
        "a browser is told the end while a block is on its way",
        "gateway.queues.selecting:Browser._find_paged",
        "            self.held_up = unsynced or coming\n",
        "            self.held_up = unsynced\n",
    ),
    _core(
        "a browser judges a queue by what another waits for",
        "gateway.store.persistence:JournalStore.first_unsynced",
        "batch.first_seqs.get(queue_id)",
        "min(batch.first_seqs.values(), default=None)",
    ),
    _core(
        "a browser is shown what does not wait for the writer yet",
        "gateway.store.persistence:JournalStore.first_unsynced",
        "in self.journal.waiting():",
        "in list(self.journal.waiting())[:1]:",
    ),
    _core(
        "a browser is shown what was set aside",
        "storage.journal:Journal.waiting",
        "self._overtaking.turns, ",
        "",
    ),
    _core(
        "nobody tells a browser that the disk has more",
        "gateway.broker.pressure.visible:Visible.durable_up_to",
        "                self._dispatch.touch(queue)\n",
        "                pass\n",
    ),
    _core(
        "a drain ends while a block is on its way",
        "gateway.broker.operations.pager:Pager._reads_on",
        "    if backlog.fetch(backlog.next):\n",
        "    if not backlog.fetch(backlog.next):\n        return False\n    else:\n",
    ),
    _core(
        "only one of those who wait for blocks is woken",
        "gateway.paging.paging:Paging._arrived",
        "    for wake in waiting:\n",
        "    for wake in list(waiting)[:1]:\n",
        first=500,
    ),
    _core(
        "an errand goes on that was cancelled",
        "gateway.broker.operations.errand:Errand.cancel",
        "    self._ended = True\n",
        "    pass\n",
        first=700,
    ),
    _core(
        "what has gone meanwhile is listed",
        "gateway.management.browsing:shown",
        " if living(m) and waits(m)]",
        " if living(m)]",
        first=485,
    ),
    _core(
        "what is not on disk is read ahead of the rest",
        "gateway.paging.cursor:Cursor.wanted",
        "while at <= part.readable:",
        "while at <= part.last:",
    ),
    _core(
        "what a start finds on pages is not counted",
        "gateway.paging.restore:_count",
        "    queue.counts.added += backlog.count\n",
        "    pass\n",
    ),
    _core(
        "a scrub does not compare payloads",
        "storage.scrub:_Batches._whole",
        "return found == head.payload_crc",
        "return found is not None",
    ),
    _core(
        "a scrub ends at the first batch that is not whole",
        "storage.scrub:_Batches.check",
        "        if following is None:\n            if last is not None:\n",
        "        if following is None:\n            if last is None:\n",
    ),
    _core(
        "a scrub judges what is not synced",
        "storage.scrub:check_journal_file",
        "segment, synced = journal.rotation.reached\n",
        "segment, synced = journal.segment, journal.busy_with or journal.rotation.reached[1]\n",
    ),
    _core(
        "memory gives back another message",
        "gateway.store.scrub_plan:_runs",
        "[(number, run[0].seq)],",
        "[(number, run[-1].seq)],",
    ),
    _core(
        "memory gives back messages that never expire",
        "gateway.store.scrub_plan:_runs",
        "message.expires if message.flags & EXPIRES else 0",
        "0",
    ),
    _core(
        "memory is asked for what waits for a consumer alone",
        "gateway.store.scrub_plan:_held",
        "chain(queue.holdings(), queue.storing())",
        "list(queue.browse(0, 1 << 30))[:1]",
    ),
    _core(
        "a damaged file is given up once memory was asked",
        "storage.compaction:Compaction._ask_memory",
        "    runs = self.recall(wanted)\n",
        "    runs = self.recall(wanted)\n    self._index.live[self.segment] = 0\n",
    ),
    _core(
        "what consumers give back is never asked for again",
        "storage.compaction:Compaction.ask_again",
        "    self._asked = False\n",
        "    pass\n",
    ),
    _core(
        "only the damaged file is emptied, not those before it",
        "storage.compaction:Compaction.choose",
        "oldest > max(self.rule.through, *self.damaged, 0)",
        "oldest > self.rule.through and oldest not in self.damaged",
    ),
)
