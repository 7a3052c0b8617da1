"""WebSocket: the handshake, frames, and the session around what is inside."""
