"""The gateway put together: configuration to a running service, its listeners, what is declared."""
