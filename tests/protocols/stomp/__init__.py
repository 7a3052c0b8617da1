"""Tests of STOMP."""
