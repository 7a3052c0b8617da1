"""The demo: senders, a gateway and a Spark query that adds up what they sent, checked."""
