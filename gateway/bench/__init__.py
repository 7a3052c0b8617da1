"""The bench: messages a second, latency, memory, disk; alone or beside another broker."""
