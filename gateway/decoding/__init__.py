"""Stored messages as columns: what a sender's bytes say, row by row or a run of rows at once.

It knows the two stored forms and Arrow; it knows no stream, no gateway and no Spark. The Spark
package carries these files and those of `gateway.model` that they import, so that executors decode
what the gateway sends as it is stored: hence imports are relative here, and nothing is imported but
the standard library, pyarrow and those. Layout: `columns` (one message), `shapes` (a run of
messages that differ in their bodies alone), `blocks` (a block, by the one or the other), `view` (a
block as the columns that somebody asked for).
"""
