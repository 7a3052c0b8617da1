"""The disk's room: when it is too full to take more, and the watch that asks."""
