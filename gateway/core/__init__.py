"""The core: journal, broker, streams and disk joined, what is declared, and what recurs."""
