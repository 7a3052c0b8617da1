"""What holds senders back: memory, limits, a full or slow disk, and what lags behind."""
