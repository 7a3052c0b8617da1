"""STOMP and AMQP over WebSocket, sans-IO: a session around the session of the protocol inside."""
