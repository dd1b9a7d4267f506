"""The demo's shop: events as a small web shop would write them, from one seed.

``shop-events``: page views, searches and orders, JSON, keyed by retailer; kept, for reports to read.
The other topics show within minutes how data leaves: ``shop-clicks`` by time, ``shop-metrics`` (how
long requests took, keyed by service) by size, ``shop-stock`` (what is left of an article) by compaction.
Nothing here is about a cluster.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

EVENTS: Final = "shop-events"
CLICKS: Final = "shop-clicks"
METRICS: Final = "shop-metrics"
STOCK: Final = "shop-stock"
RETAILERS: Final = ("anker", "birke", "cedar", "dune", "elm")
PAGES: Final = ("/", "/lamps", "/chairs", "/tables", "/sale", "/basket")
WORDS: Final = ("lamp", "oak chair", "desk", "green sofa", "shelf")
ARTICLES: Final = 40
MOST_IN_STOCK: Final = 500


class Topic(NamedTuple):
    partitions: int
    configs: Mapping[str, str]


_MINUTE: Final = "60000"
#: Segments of a minute: only closed ones are deleted or compacted.
TOPICS: Final[Mapping[str, Topic]] = MappingProxyType(
    {
        EVENTS: Topic(3, {}),
        CLICKS: Topic(1, {"retention.ms": "180000", "segment.ms": _MINUTE}),
        METRICS: Topic(1, {"retention.bytes": "262144", "segment.ms": _MINUTE}),
        STOCK: Topic(
            1,
            {
                "cleanup.policy": "compact",
                "segment.ms": _MINUTE,
                "min.cleanable.dirty.ratio": "0.1",
            },
        ),
    }
)


class Produced(NamedTuple):
    topic: str
    key: bytes
    value: bytes


def shop(dice: random.Random, now_ms: int) -> Iterator[Produced]:
    """One visitor's step: an event, the click, how long its request took, what is left in stock."""
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
    click = {
        "at": now_ms,
        "user": event["user"],
        "x": dice.randrange(1200),
        "y": dice.randrange(800),
    }
    yield Produced(CLICKS, event["user"].encode(), json.dumps(click).encode())
    article = f"article-{dice.randrange(ARTICLES):02}"
    stock = {"article": article, "at": now_ms, "left": dice.randrange(MOST_IN_STOCK)}
    yield Produced(STOCK, article.encode(), json.dumps(stock).encode())
