"""Who may come in: the users file, stored passwords, and the gate that checks them.

Knows no protocol, no reactor and no file: texts come in, threads and time are handed in.
"""
