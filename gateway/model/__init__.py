"""The vocabulary of the gateway: messages, addresses, refusals and the ports between layers.

It imports nothing of ours, and knows no socket, clock, thread or logger.
"""
