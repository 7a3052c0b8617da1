"""The HTTP API: values and routes (pure), their wire on `twisted.web`, and the metrics text."""
