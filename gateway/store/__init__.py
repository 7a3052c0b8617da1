"""The store under the broker: objects to records and back, start, pages, scrub, a slow disk."""
