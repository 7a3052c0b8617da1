"""Addresses in page mode: what is on their pages, who has read it, and what may be read next."""
