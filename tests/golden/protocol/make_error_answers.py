"""Makes ``error_answers.txt``: how Apache Kafka 4.4 refuses a whole request, per API and version.

    python -m tests.golden.protocol.make_error_answers DIRECTORY_OF_KAFKA_JARS

Needs a JDK. Each line: API key, version, request (without header), response (without length; the
correlation id is 77, the error UNKNOWN_SERVER_ERROR with the message "it broke").
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from kio.serial import entity_writer

from broker.protocol import schema
from broker.protocol.api_versions import SERVED
from tests.support.sample_messages import sample

HERE = Path(__file__).parent


def main(jars: str) -> None:
    requests = []
    for api_key, api_range in SERVED.items():
        for version in range(api_range.min_version, api_range.max_version + 1):
            message = sample(schema.request_type(api_key, version))
            buffer = io.BytesIO()
            if (api_key, version) in {(18, 5), (28, 6)}:  # not in kio
                out = bytearray()
                schema.entity_codec(type(message)).write(out, message)
                buffer.write(out)
            else:
                entity_writer(type(message))(buffer, message)
            requests.append(f"{int(api_key)} {version} {buffer.getvalue().hex()}")
    answers = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(HERE / "ErrorAnswers.java")],
        input="\n".join(requests),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    lines = []
    for request, answer in zip(requests, answers, strict=True):
        assert request.split()[:2] == answer.split()[:2]
        lines.append(f"{request} {answer.split()[2]}")
    (HERE / "error_answers.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
