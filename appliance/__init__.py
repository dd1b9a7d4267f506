"""Command line, supervisor and (later) the Django project of the appliance."""

from broker import VERSION

__all__ = ["VERSION"]
