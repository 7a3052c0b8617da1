"""Address settings: wildcard matches, and what is in effect for one address."""
