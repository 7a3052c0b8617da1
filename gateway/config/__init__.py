"""The configuration: TOML, environment and `--set` in, one frozen tree of settings out.

Reading is pure but for `load.py`, which opens the file. Every mistake is found in one pass and told
with its place, its key path and the nearest known key.
"""
