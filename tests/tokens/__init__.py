"""Tokens: their judge against hostile ones, keys that roll, ends that come."""
