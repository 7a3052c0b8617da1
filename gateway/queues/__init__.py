"""The queue core: what is ready, who gets it, what comes back.

Pure: time is an argument, effects go to a port.
"""
