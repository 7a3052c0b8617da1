"""Tests of the archive: its table, what is written to it, what is read from it."""
