"""The tests; folders mirror those of the code."""
