"""What is unsafe or unhealthy of a configuration, its files and its running gateway.

facts (files, process, API) ──> checks (pure) ──> findings, each with a stable code
"""
