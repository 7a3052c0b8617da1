"""Clients of both protocols over a network that is cut, stalls and tears what passes it."""
