"""Tests of page mode."""
