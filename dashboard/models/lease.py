"""Who does something that only one process of all nodes may do, until when."""

from __future__ import annotations

from django.db import models


class Lease(models.Model):
    """Taken and renewed by ``dashboard.leases`` alone."""

    name = models.CharField(max_length=64, unique=True)
    holder = models.CharField(max_length=128)
    until = models.DateTimeField()
