"""franz-go's own tests, against a real cluster: what Apache Kafka passes, Odradek passes.

Its module carries them. Those without a use for a broker run along; they must pass as well.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import foreign
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY
from tests.support.routing import OURS, Site, replicas, shared_site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
RECORDS = 20_000
broker = shared_site(OURS)
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
#: Tests that franz-go skips here, by a part of their names: docs/not_implemented.md says why.
LEFT_OUT = ("ShareGroup", "ShareSkips")


def results(site: Site, directory: Path) -> dict[str, str]:
    """PASS, FAIL or SKIP of each test."""
    program = foreign.require(foreign.FRANZ_GO_TEST)
    output = directory / "output.txt"
    environment = {
        **os.environ,
        "KGO_SEEDS": site.bootstrap,
        "KGO_TEST_RF": str(replicas(site)),
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    with output.open("wb") as file:
        subprocess.run(
            [*program, "-test.v", "-test.timeout=20m"],
            env=environment,
            cwd=foreign.franz_go_directory(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    found = {name: result for result, name in RESULT.findall(output.read_text(errors="replace"))}
    assert len(found) > 100, output.read_text(errors="replace")[-5000:]
    return found


@pytest.fixture(scope="module")
def theirs(shared_apache: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return results(shared_apache, tmp_path_factory.mktemp("apache"))


def test_what_apache_kafka_passes_passes_here(
    theirs: dict[str, str], broker: Site, tmp_path: Path
) -> None:
    ours = results(broker, tmp_path)
    missed = {
        name: ours.get(name, "not run")
        for name, result in theirs.items()
        if result == "PASS" and ours.get(name) != "PASS"
    }
    left_out = {name for name in missed if any(part in name for part in LEFT_OUT)}
    assert {name: missed[name] for name in missed.keys() - left_out} == {}
    assert {missed[name] for name in left_out} <= {"SKIP"}
    page = (REPOSITORY / "docs" / "not_implemented.md").read_text()
    assert [part for part in LEFT_OUT if f"`{part}`" not in page] == []
