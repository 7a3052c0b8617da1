"""What happens to messages that wait: paging, moving, expiry, dead letters, errands."""
