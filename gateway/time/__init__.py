"""Time: the broker's clock, the reactor's, and what makes the reactor come back in time."""
