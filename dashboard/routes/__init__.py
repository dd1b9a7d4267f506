"""Addresses of the pages, by area."""
