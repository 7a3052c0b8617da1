"""What is under both protocols: sockets, TLS, turns, clocks, and what a first byte says."""
