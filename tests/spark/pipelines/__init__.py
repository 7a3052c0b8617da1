"""The pipelines: their pure parts, and each once in Spark against a real gateway."""
