"""Hostile peers against a real gateway: what each costs it, and what an honest client feels.

`make attack` runs every flood for a while and writes docs/attack.md; the tests run each for a
moment and hold the bounds.
"""
