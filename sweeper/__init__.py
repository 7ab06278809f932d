"""Finds the fastest honest configuration of an SGLang server on one node."""

__version__ = "0.1.0"
