from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from broker.protocol.api_versions import SERVED
from tests.golden.protocol.make_sample_digests import sample_bytes
from tests.support.message_strategies import versions

GOLDEN = Path(__file__).parents[2] / "golden" / "protocol" / "sample_digests.txt"
DIGESTS = {
    (int(key), int(version), kind): digest
    for key, version, kind, digest in map(str.split, GOLDEN.read_text().splitlines())
}


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("api_key", [int(key) for key in SERVED])
def test_messages_have_the_bytes_of_kafka_4_4_in_every_version(api_key: int, kind: str) -> None:
    for version in versions(api_key):
        digest = hashlib.sha256(sample_bytes(api_key, version, kind)).hexdigest()
        assert digest == DIGESTS[api_key, version, kind], f"version {version}"
