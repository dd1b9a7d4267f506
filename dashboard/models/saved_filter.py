"""A search that a person gave a name: what stands in its page's address after the question mark."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SavedFilter(models.Model):
    """Only its owner sees the name; the address itself can be given to anybody."""

    class Place(models.TextChoices):
        MESSAGES = "messages", "Messages"
        TAIL = "tail", "Live tail"

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters"
    )
    place = models.CharField(max_length=16, choices=Place)
    topic = models.CharField(max_length=249, blank=True)
    """Of messages: the topic that it is offered at; empty: at every one. A tail has its topics in
    the query."""
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=8000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name", "id")
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "place", "topic", "name"], name="one_filter_of_a_name"
            )
        ]
