"""docs/reference, made from the code: `make reference` writes it, a test compares it."""
