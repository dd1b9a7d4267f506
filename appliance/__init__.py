"""Command line, supervisor and (later) the Django project of the appliance."""

VERSION = "0.1.0"
"""The same as in pyproject.toml: reading it from the installed metadata takes 30 ms."""
