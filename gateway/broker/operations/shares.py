"""Copies of a message in several queues, and places as ranges. Pure."""

from __future__ import annotations

from gateway.model.message import SHARED, Message


def without_copies(messages: list[Message]) -> tuple[int, int]:
    """Return how many messages are gone with these copies, and the bytes that others still hold."""
    count = len(messages)
    kept_bytes = 0
    for message in messages:
        if message.flags & SHARED:
            share = message.share
            share[0] -= 1
            if share[0]:
                count -= 1
                kept_bytes += len(message.body)
    return count, kept_bytes


def joined_ranges(seqs: list[int]) -> list[tuple[int, int]]:
    """Return ascending seqs as (first, last) ranges; one range costs no loop."""
    if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
        return [(seqs[0], seqs[-1])]
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges
