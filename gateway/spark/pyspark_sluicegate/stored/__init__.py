"""The gateway's own decoder of stored messages: its files, linked here and built into the wheel.

The executors decode what a gateway sends as it is stored. `decoding` and `model` are the same files
as in the gateway's folders of those names.
"""
