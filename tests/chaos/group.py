"""Who owns what of a group, as its coordinator tells on the wire.

librdkafka's own question for it ends the process when the connection to the coordinator is lost at the wrong moment
(its issue 4605).
"""

from __future__ import annotations

import struct
from typing import Final

from tests.support import wire

ANSWER_SECONDS: Final = 2.0


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    pairs = [each.rpartition(":") for each in bootstrap.split(",")]
    return [(host, int(port)) for host, _, port in pairs]


def look(address: tuple[str, int], group_id: str) -> dict[str, list[int]] | None:
    """Partitions by member; None where that broker is not the coordinator, or does not answer."""
    try:
        with wire.Wire(address, timeout=ANSWER_SECONDS) as connection:
            (found,) = connection.request("describe_groups", 4, groups=[group_id]).groups
    except (OSError, wire.WireError):
        return None
    if found.error_code != 0:
        return None
    return {member.member_id: partitions(member.member_assignment) for member in found.members}


def partitions(assignment: bytes) -> list[int]:
    """Of a classic member's assignment, whatever their topics; a member that waits for one has none."""
    if not assignment:
        return []
    found: list[int] = []
    (topic_count,) = struct.unpack_from(">i", assignment, 2)
    position = 6
    for _ in range(topic_count):
        (size,) = struct.unpack_from(">h", assignment, position)
        (count,) = struct.unpack_from(">i", assignment, position + 2 + size)
        position += 6 + size
        found += struct.unpack_from(f">{count}i", assignment, position)
        position += 4 * count
    return found
