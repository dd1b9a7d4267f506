"""Addresses: transactions. An id can hold anything, so it travels as ``?id=``."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import transactions

urlpatterns: list[URLPattern | URLResolver] = [
    path("transactions/", transactions.transactions, name="transactions"),
    path("transactions/abort", transactions.abort, name="transaction_abort"),
    path(
        "transactions/abort-hanging", transactions.abort_hanging, name="transaction_abort_hanging"
    ),
]
