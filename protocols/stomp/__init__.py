"""STOMP 1.0, 1.1 and 1.2: bytes to calls on the broker port and back, without sockets or clocks."""
