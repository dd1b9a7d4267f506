"""The rule file: read by Prometheus's own tool where it is there, by its shape everywhere."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dashboard.alerting.defaults import default_values
from dashboard.alerting.kinds import KINDS
from dashboard.alerting.prometheus import rule_file
from dashboard.models import AlertRule


def rule(kind: str, name: str = "", **values: object) -> AlertRule:
    return AlertRule(name=name or KINDS[kind].label, **{**default_values(KINDS[kind]), **values})


HOSTILE = [
    rule("group_lag", 'a "b" {{ c }}\n: - é', targets="pay-*, b.c?, x+(y"),
    rule("group_lag", "class", targets="[ab]*"),
    rule("partition_offline", "one topic", targets="orders"),
]


def test_every_line_is_of_the_form_that_prometheus_reads() -> None:
    text = rule_file([*(rule(kind) for kind in KINDS), *HOSTILE])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    forms = (
        r"groups:", r"  - name: odradek", r"    rules:", r"        labels:", r"        annotations:",
        r'      - alert: "\w+"', r"        for: \d+s", r'        expr: (".*")',
        r'          (?:severity|summary|description): (".*")',
    )  # fmt: skip
    for line in lines:
        (found,) = [match for form in forms if (match := re.fullmatch(form, line))]
        for scalar in found.groups():
            json.loads(scalar)
    assert text.count("- alert:") == len(KINDS) + len(HOSTILE)


def test_promtool_reads_it(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; the shape above is checked")
    for rules in ([], [*(rule(kind) for kind in KINDS), *HOSTILE]):
        path = tmp_path / "rules.yml"
        path.write_text(rule_file(rules))
        done = subprocess.run(
            [promtool, "check", "rules", str(path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(rules)} rules found" in done.stdout


def test_globs_become_a_pattern_of_the_label() -> None:
    text = rule_file([rule("group_lag", targets="pay-*, b.c?")])
    expression = json.loads(re.search(r"expr: (.*)", text)[1])  # type: ignore[index]

    assert expression == (
        'odradek_consumergroup_lag_seconds{consumergroup=~"pay\\\\-.*|b\\\\.c."} > 60'
    )


def test_what_figures_cannot_say_asks_what_odradek_found() -> None:
    for odd in (HOSTILE[1], HOSTILE[2], rule("job_failed"), rule("child_restarts")):
        assert "odradek_alerts_firing{rule=" in rule_file([odd])


def test_the_metrics_that_it_names_are_ours() -> None:
    """Read from the code of the two that serve them."""
    root = Path(__file__).resolve().parents[3]
    served = (root / "dashboard/metrics.py").read_text() + (
        root / "broker/server/metrics.py"
    ).read_text()
    served = served.replace("{controller}", "kafka_controller_kafkacontroller").replace(
        "{replicas}", "kafka_server_replicamanager"
    )
    named = set(re.findall(r"\b(?:odradek|kafka)_[a-z_]+", rule_file(rule(kind) for kind in KINDS)))
    assert len(named) > 7
    assert {name for name in named if name not in served} == set()
