"""The same rules for a Prometheus that scrapes Odradek: ``/metrics`` of the web process and the broker.

What the figures there can express is written with them, so that Prometheus notices by itself; what
they cannot (targets that have no label there, failures in a row, restarts) asks the metric
``odradek_alerts_firing``, which says what Odradek itself found. Scalars are written as JSON strings,
which every YAML reader takes as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

from dashboard.alerting.kinds import KINDS, globs, rule_in_words
from dashboard.models import AlertRule

Values = Mapping[str, int]

_HEAD = """\
# Alerting rules of Odradek for Prometheus. Scrape the web process's /metrics (bearer token
# metrics_token) and the broker's (broker_metrics), then name this file under rule_files.
groups:
  - name: odradek
    rules:
"""
_CONTROLLER = "kafka_controller_kafkacontroller"
_REPLICAS = "kafka_server_replicamanager"


def rule_file(rules: Iterable[AlertRule]) -> str:
    written = [_rule(rule) for rule in rules]
    return _HEAD + "".join(written) if written else _HEAD.replace("rules:", "rules: []")


def _rule(rule: AlertRule) -> str:
    kind = KINDS[rule.kind]
    of_cluster, of_targets = _EXPRESSIONS.get(rule.kind, (None, None))
    values = kind.values(rule.parameters)
    pattern = _pattern(rule.targets)
    for_seconds = rule.for_seconds
    if of_targets is not None and pattern is not None:
        expression = of_targets(values, pattern)
    elif of_cluster is not None and pattern == ".*":
        expression = of_cluster(values)
    else:
        # Odradek's own machine has waited already.
        expression = f"odradek_alerts_firing{{rule={json.dumps(rule.name)}}} > 0"
        for_seconds = 0
    if rule.kind == "scheduler_silent":
        for_seconds += values["silent_seconds"]
    words = rule_in_words(rule.kind, rule.parameters, rule.targets, rule.for_seconds)
    return (
        f"      - alert: {json.dumps(_name(rule.name))}\n"
        f"        expr: {json.dumps(expression)}\n"
        f"        for: {for_seconds}s\n"
        "        labels:\n"
        f"          severity: {json.dumps(str(rule.severity))}\n"
        "        annotations:\n"
        f"          summary: {json.dumps(_literal(rule.name))}\n"
        f"          description: {json.dumps(_literal(words))}\n"
    )


def _name(name: str) -> str:
    """``OdradekBrokerDoesNotAnswer``."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    return "Odradek" + "".join(word[:1].upper() + word[1:] for word in words)


def _literal(text: str) -> str:
    """Annotations are templates there; names are not."""
    return text.replace("{{", "{ {")


def _pattern(targets: str) -> str | None:
    """Globs as one regular expression of RE2; None where a glob has a class of characters."""
    found = globs(targets)
    if not found or "*" in found:
        return ".*"
    if any("[" in glob for glob in found):
        return None
    parts = []
    for glob in found:
        pieces = re.split(r"([*?])", glob)
        parts.append(
            "".join({"*": ".*", "?": "."}.get(piece, re.escape(piece)) for piece in pieces)
        )
    return "|".join(parts)


def _lag(values: Values, pattern: str) -> str:
    label = "" if pattern == ".*" else f"{{consumergroup=~{json.dumps(pattern)}}}"
    return f"odradek_consumergroup_lag_seconds{label} > {values['lag_seconds']}"


def _floor(values: Values) -> str:
    free, total = "odradek_log_dir_free_bytes", "odradek_log_dir_total_bytes"
    percent, most = values["free_percent"], values["free_mib"] * 1024 * 1024
    return f"({free} / {total} * 100 < {percent}) or ({free} < {most})"


def _trend(values: Values) -> str:
    ahead = values["hours"] * 3600
    free = "odradek_log_dir_free_bytes"
    return " and ".join(f"predict_linear({free}[{window}], {ahead}) < 0" for window in ("6h", "1h"))


Expressions = tuple[Callable[[Values], str] | None, Callable[[Values, str], str] | None]
_EXPRESSIONS: Mapping[str, Expressions] = {
    "broker_silent": (lambda values: "odradek_broker_ready == 0", None),
    "partition_offline": (
        lambda values: f"max({_CONTROLLER}_offlinepartitionscount) > 0",
        None,
    ),
    "under_min_isr": (lambda values: f"max({_REPLICAS}_underminisrpartitioncount) > 0", None),
    "under_replicated": (lambda values: f"max({_REPLICAS}_underreplicatedpartitions) > 0", None),
    "group_lag": (None, _lag),
    "disk_floor": (_floor, None),
    "disk_trend": (_trend, None),
    "scheduler_silent": (lambda values: "odradek_scheduler_up == 0", None),
}
