"""Addresses, queues and diverts: which there are, and the rules by which they are made and go."""
