"""Java's properties, known failures, user files, parameters, results' directories: without Spark."""

import os
from pathlib import Path
from typing import Any

import pytest

from dashboard.spark import catalog, failures, results
from dashboard.spark.client_properties import java_properties
from spark_tasks import registry
from spark_tasks.report import Parameter, described
from tests.support.odradek import REPOSITORY


def test_login_and_authority_are_told_to_java() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/etc/ca.pem",
        "socket.keepalive.enable": "true",
    }
    assert java_properties(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ann" password="a\\"b\\\\c";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
    }


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("AnalysisException: Failed to find data source: kafka", "spark prepare"),
        ("NoClassDefFoundError: scala/$less$colon$less", "spark prepare"),
        ("OutOfMemoryError: Java heap space", "spark.driver.memory"),
        ("KafkaException: No resolvable bootstrap urls given", "advertise"),
        ("TimeoutException: Timed out waiting for a node assignment: topic orders", "advertise"),
        ("SparkNumberFormatException: [CAST_INVALID_INPUT] The value", "another type"),
        ("IOException: No space left on device", "disk is full"),
    ],
)
def test_known_failures_come_with_advice(text: str, advice: str) -> None:
    assert advice in failures.with_advice(text).partition("\n")[2]


def test_an_unknown_failure_is_left_as_it_is() -> None:
    assert failures.with_advice("ValueError: odd") == "ValueError: odd"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("window", "90s", 90),
        ("window", "2h", 7200),
        ("integer", "12", 12),
        ("number", "1.5", 1.5),
        ("percentiles", "99, 50", [50.0, 99.0]),
        ("text", "", None),
    ],
)
def test_parameters_have_types(kind: Any, text: str, value: Any) -> None:
    assert Parameter("x", "X", kind).parse(text) == value


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (Parameter("x", "X", "window"), "0m"),
        (Parameter("x", "X", "window"), "1 fortnight"),
        (Parameter("x", "X", "number"), "nan"),
        (Parameter("x", "X", "integer", maximum=5), "6"),
        (Parameter("x", "X", "percentiles", maximum=100), "50, 101"),
        (Parameter("x", "X", is_required=True), " "),
        (Parameter("x", "X", choices=("a", "b")), "c"),
        (Parameter("x", "X"), "x" * 501),
    ],
)
def test_a_wrong_parameter_is_said_by_its_label(parameter: Parameter, text: str) -> None:
    with pytest.raises(ValueError, match="X: "):
        parameter.parse(text)


def test_every_shipped_report_can_be_described_without_spark() -> None:
    assert len(registry.shipped()) == 9
    for report in registry.shipped().values():
        again = described(report.describe())
        assert again.parameters == report.parameters
        assert again.chart == report.chart
        defaults = {p.name: p.default or "x" for p in report.parameters}
        report.parse(defaults)


USER_REPORT = """
from spark_tasks.report import Report, Parameter
import os
open(os.path.join(os.path.dirname(__file__), "imported-by"), "a").write(f"{os.getpid()}\\n")
REPORT = Report("any", "Mine", "d", lambda context: context.records, (Parameter("f", "F"),))
"""


def test_user_files_are_loaded_elsewhere_and_only_when_nobody_else_could_write_them(
    tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path
    directory = results.user_reports()
    directory.mkdir(mode=0o755)
    (directory / "mine.py").write_text(USER_REPORT)
    (directory / "broken.py").write_text("raise ValueError('no')")
    (directory / "open_to_all.py").write_text(USER_REPORT)
    (directory / "open_to_all.py").chmod(0o666)
    (directory / "Bad-Name.py").write_text(USER_REPORT)
    (directory / "link.py").symlink_to(directory / "mine.py")
    for name in ("mine.py", "broken.py", "Bad-Name.py"):
        (directory / name).chmod(0o644)
    found, refused = catalog.user_reports()
    assert [report.title for report in found.values()] == ["Mine"]
    assert list(found) == ["user/mine"]
    reasons = {each.file: each.reason for each in refused}
    assert reasons.keys() == {"broken.py", "open_to_all.py", "Bad-Name.py", "link.py"}
    assert "written by others" in reasons["open_to_all.py"]
    assert "ValueError: no" in reasons["broken.py"]
    assert "plain file" in reasons["link.py"]
    importers = (directory / "imported-by").read_text().split()
    assert importers
    assert str(os.getpid()) not in importers
    assert catalog.find("user/mine") is not None

    directory.chmod(0o777)
    found, refused = catalog.user_reports()
    assert found == {}
    assert {"its directory can be written by others (chmod go-w)"} == {r.reason for r in refused}


def test_old_results_and_what_dead_runs_left_make_room(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    for run_id in range(1, 5):
        results.complete(results.begin("a", run_id))
    results.begin("a", 5)
    results.begin("a", 6)
    assert results.prune("a", 2, {6}) == 3
    left = {path.name for path in (tmp_path / "reports/a").iterdir()}
    assert left == {"run=3", "run=4", "run=6.tmp"}
    results.complete(results.begin("gone", 7))
    assert results.sweep({"a"}) == 1
    assert not (tmp_path / "reports/gone").exists()


def test_the_extra_and_the_image_have_the_reports() -> None:
    image = (REPOSITORY / "Dockerfile").read_text()
    assert "COPY spark_tasks spark_tasks" in image
