"""What runs inside Spark: standard library, pyarrow and pyspark only, nothing of the gateway.

Layout: `options` (what users write), `client` (HTTP with retries), `offsets` (checkpoint text,
ranges cut into tasks), `rows` (a range read and checked), `source` (the classes Spark calls).
"""
