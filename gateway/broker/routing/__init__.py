"""The way of a run from its sender to the queues and streams that it is for."""
