"""Listeners: from an endpoint to open ports, the connections behind them, and certificates."""
