"""Bugs planted in the journal, to see that the simulation finds them."""
