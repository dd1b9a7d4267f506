"""Straight-line codecs for the requests that run per batch, and for the largest answers."""
