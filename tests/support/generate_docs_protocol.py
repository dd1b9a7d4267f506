"""Renders ``docs/protocol.md``: what is served, beside what Apache Kafka 4.4 advertises.

Our side is ``broker.protocol.api_versions``; Kafka's is its own answer to ApiVersions, captured in
``tests/golden/protocol/exchanges.jsonl``.
"""

from __future__ import annotations

import json
from pathlib import Path

from broker.protocol import schema
from broker.protocol.api_versions import NEVER, SERVED, ApiKey
from broker.protocol.codec import Cursor, entity_codec
from broker.protocol.limits import MAX_REQUEST_ELEMENTS, MAX_TAGGED_FIELDS
from broker.protocol.request import parse_header

EXCHANGES = Path(__file__).parents[1] / "golden" / "protocol" / "exchanges.jsonl"

#: What a reader of the table should know about one row.
REMARKS: dict[int, str] = {
    ApiKey.PRODUCE: "0-2 are advertised and refused, as in Kafka 4: older librdkafka needs to see them",
    ApiKey.API_VERSIONS: "an unknown version is answered in version 0 with error 35",
    ApiKey.FIND_COORDINATOR: "share groups have no coordinator",
    ApiKey.LIST_GROUPS: "groups of the classic protocol, whatever the filter",
    ApiKey.END_TXN: "5 raises the producer's epoch (`transaction.version` 2, KIP-890)",
    ApiKey.TXN_OFFSET_COMMIT: "5 and 6 add the group to the transaction (`transaction.version` 2, KIP-890)",
    ApiKey.DESCRIBE_QUORUM: "of any partition, at its leader: who follows, how far, when it was in sync last",
    ApiKey.LIST_TRANSACTIONS: "no pattern of transactional ids (2, KIP-1152)",
    ApiKey.FETCH: "the replica's directory id (17) and high watermark (18) are read over",
}

INTRODUCTION = """\
# Protocol

Made by `make docs` from `broker/protocol/api_versions.py`; do not edit. The broker speaks the protocol
of Apache Kafka 4: what stands in the first table is advertised by ApiVersions and served, nothing else.
The column of Kafka 4.4 is what a broker of that version advertises itself. Flexible versions (KIP-482)
have compact lengths and tagged fields; tagged fields that are not known are skipped.
"""

LIMITS = f"""\
## Limits

A frame may have `socket.request.max.bytes`. Within a request there may be {MAX_REQUEST_ELEMENTS:,} array
elements at all levels together, and {MAX_TAGGED_FIELDS} tagged fields in one section of a header or of a
Produce, Fetch, ListOffsets or Metadata request. A request beyond that, or one whose bytes are not of the
version that its header names, closes the connection. Text that is no UTF-8 is read with replacement
characters, as Kafka does. Bytes behind the end of a request are ignored.

A request at a version that is not served closes the connection too, after a log line that names API,
version and client; only ApiVersions is answered whatever its version (KIP-511).
"""


def kafka_ranges() -> dict[int, tuple[int, int]]:
    """What Apache Kafka 4.4 advertised when the exchanges were captured."""
    for line in EXCHANGES.read_text().splitlines():
        exchange = json.loads(line)
        header = parse_header(memoryview(bytes.fromhex(exchange["request"])))
        if (header.api_key, header.api_version) != (ApiKey.API_VERSIONS, 5):
            continue
        read = entity_codec(schema.response_type(ApiKey.API_VERSIONS, 5)).read
        response = read(Cursor(memoryview(bytes.fromhex(exchange["response"])), 4))
        return {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    raise LookupError(f"no ApiVersions 5 in {EXCHANGES}")


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _served_table(kafka: dict[int, tuple[int, int]]) -> list[str]:
    lines = [
        "| key | API | versions served | Kafka 4.4 | flexible from | remarks |",
        "|---|---|---|---|---|---|",
    ]
    for key, served in sorted(SERVED.items()):
        flexible = "never" if served.flexible_from == NEVER else served.flexible_from
        lines.append(
            f"| {int(key)} | {ApiKey(key).wire_name}"
            f" | {_range(served.min_version, served.max_version)}"
            f" | {_range(*kafka[key])} | {flexible} | {REMARKS.get(key, '')} |"
        )
    return lines


def _left_out_table(kafka: dict[int, tuple[int, int]]) -> list[str]:
    lines = ["| key | API | Kafka 4.4 |", "|---|---|---|"]
    for key, versions in sorted(kafka.items()):
        if key not in SERVED:
            lines.append(f"| {key} | {ApiKey(key).wire_name} | {_range(*versions)} |")
    return lines


def render() -> str:
    kafka = kafka_ranges()
    parts = [
        INTRODUCTION,
        *_served_table(kafka),
        "",
        "## Left out",
        "",
        "Kafka 4.4 advertises these, and this broker does not (why: `docs/not_implemented.md`).",
        "",
        *_left_out_table(kafka),
        "",
        LIMITS,
    ]
    return "\n".join(parts)
