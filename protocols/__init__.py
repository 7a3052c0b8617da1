"""Bytes to calls on the broker port and back; nothing here knows a queue or a file."""
