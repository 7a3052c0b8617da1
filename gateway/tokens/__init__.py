"""Tokens of issuers elsewhere: read, judged, their keys fetched; who is let in ends with them."""
