"""Gateways to try things on, in processes of their own, with certificates; Java for Spark."""
