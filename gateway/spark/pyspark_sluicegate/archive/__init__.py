"""Streams as a table on object storage: its form, its files, its commits, and rows read back.

One Delta table holds the streams of any number of gateways. Executors write and read its Parquet
files (pyarrow, obstore), the driver alone reads and commits its log (deltalake). Nothing here
imports pyspark, so that a gateway's commands use the same modules.

Layout: `layout` (columns, names and facts of files), `store` (where a table is), `table` (its log),
`ledger` (what of a batch the table still needs), `writing`, `reading` and `rewriting` (rows to
files and back), `committing` (one batch, one commit), `ranges` (what the table has of a range),
`compacting`, `proving`.
"""
