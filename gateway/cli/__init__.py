"""The command line.

Commands load only what they use: a client command imports neither twisted nor
structlog.
"""
