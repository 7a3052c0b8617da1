"""Bytes and positions on disk; nothing here knows a queue or a protocol."""
