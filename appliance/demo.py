"""The demo's shop: events as a small web shop would write them, from one seed.

``shop-events``: page views, searches and orders, JSON, keyed by retailer. ``shop-metrics``: how long
requests took, keyed by service. Nothing here is about a cluster.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

EVENTS: Final = "shop-events"
METRICS: Final = "shop-metrics"
RETAILERS: Final = ("anker", "birke", "cedar", "dune", "elm")
PAGES: Final = ("/", "/lamps", "/chairs", "/tables", "/sale", "/basket")
WORDS: Final = ("lamp", "oak chair", "desk", "green sofa", "shelf")
SERVICES: Final = ("web", "search", "checkout")


class Produced(NamedTuple):
    topic: str
    key: bytes
    value: bytes


def shop(dice: random.Random, now_ms: int) -> Iterator[Produced]:
    """One visitor's step: an event, and how long its request took."""
    kind = dice.choices(("view", "search", "order"), (80, 15, 5))[0]
    retailer = dice.choices(RETAILERS, (8, 5, 3, 2, 1))[0]
    event: dict[str, Any] = {
        "kind": kind,
        "at": now_ms,
        "retailer": retailer,
        "user": f"u{dice.randrange(500)}",
    }
    if kind == "view":
        event["page"] = dice.choices(PAGES, (30, 20, 20, 10, 15, 5))[0]
    elif kind == "search":
        event["words"] = dice.choices(WORDS)[0]
    else:
        event["amount"] = round(dice.lognormvariate(3.5, 0.8), 2)
    yield Produced(EVENTS, retailer.encode(), json.dumps(event).encode())
    service = {"view": "web", "search": "search", "order": "checkout"}[kind]
    took = {
        "service": service,
        "at": now_ms,
        "took_ms": round(dice.lognormvariate(3 if service == "web" else 4, 0.6), 1),
    }
    yield Produced(METRICS, service.encode(), json.dumps(took).encode())
