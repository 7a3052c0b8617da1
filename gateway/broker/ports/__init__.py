"""What the rooms of the broker ask of others: of the store, of streams, and of the turn."""
