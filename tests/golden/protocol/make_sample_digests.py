"""Makes ``sample_digests.txt``: every message in every served version, as Apache Kafka 4.4 encodes it.

    python -m tests.golden.protocol.make_sample_digests DIRECTORY_OF_KAFKA_JARS

Needs a JDK. ``tests.support.sample_messages`` fills each request and response; Kafka's classes read our
bytes to the end and write them again. Kept is the SHA-256 of what Kafka wrote: API key, version, kind,
digest. So the schemas in use are Kafka 4.4's, whatever library they come from.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from broker.protocol import schema
from broker.protocol.api_versions import SERVED
from broker.protocol.codec import entity_codec
from tests.support.message_strategies import versions
from tests.support.sample_messages import sample

HERE = Path(__file__).parent


def sample_bytes(api_key: int, version: int, kind: str) -> bytes:
    find = schema.request_type if kind == "request" else schema.response_type
    message = sample(find(api_key, version))
    out = bytearray()
    entity_codec(type(message)).write(out, message)
    return bytes(out)


def main(jars: str) -> None:
    lines = [
        f"{int(api_key)} {version} {kind} {sample_bytes(api_key, version, kind).hex()}"
        for api_key in SERVED
        for version in versions(api_key)
        for kind in ("request", "response")
    ]
    written = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(HERE / "Reencode.java")],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    digests = []
    for line in written:
        head, _, data = line.rpartition(" ")
        digests.append(f"{head} {hashlib.sha256(bytes.fromhex(data)).hexdigest()}")
    assert len(digests) == len(lines)
    (HERE / "sample_digests.txt").write_text("\n".join(digests) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
