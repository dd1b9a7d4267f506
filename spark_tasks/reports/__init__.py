"""The reports that Odradek ships, one a module with a ``REPORT``."""
