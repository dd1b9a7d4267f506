"""docs/grafana-odradek.json: a dashboard for Grafana over what Prometheus reads from Odradek.

Its panels are this table; a test compares the names in it with those that a broker and a web process tell.
"""

import json
import re
from typing import Any, NamedTuple


class Panel(NamedTuple):
    title: str
    unit: str
    #: Expression and legend.
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8


_TRAFFIC = "kafka_server_brokertopicmetrics"
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Health",
        (
            Panel("Ready", "short", (("min(odradek_ready)", ""),), "stat", 4),
            Panel("Controllers", "short",
                  (("sum(kafka_controller_kafkacontroller_activecontrollercount)", ""),), "stat", 4),
            Panel("Offline partitions", "short",
                  (("max(kafka_controller_kafkacontroller_offlinepartitionscount)", ""),), "stat", 4),
            Panel("Under-replicated", "short",
                  (("max(kafka_server_replicamanager_underreplicatedpartitions)", ""),), "stat", 4),
            Panel("Alerts that fire", "short", (("sum(odradek_alerts_firing)", ""),), "stat", 4),
            Panel("Failed log directories", "short",
                  (("sum(kafka_log_logmanager_offlinelogdirectorycount)", ""),), "stat", 4),
        ),
    ),
    (
        "Traffic",
        (
            Panel("Bytes in", "Bps", ((f'rate({_TRAFFIC}_bytesin_total{{topic=""}}[5m])', "{{instance}}"),)),
            Panel("Bytes out", "Bps", ((f'rate({_TRAFFIC}_bytesout_total{{topic=""}}[5m])', "{{instance}}"),)),
            Panel("Records in, by topic", "cps",
                  ((f'topk(10, rate({_TRAFFIC}_messagesin_total{{topic!=""}}[5m]))', "{{topic}}"),)),
            Panel("Requests, by API", "reqps",
                  (("sum by (request) (rate(kafka_network_requestmetrics_requests_total[5m]))",
                    "{{request}}"),)),
            Panel("Connections", "short",
                  (("kafka_server_socket_server_metrics_connection_count", "{{instance}}"),)),
            Panel("Lateness of the event loop", "s",
                  tuple((f"histogram_quantile({share}, rate(odradek_loop_lag_seconds_bucket[5m]))",
                         f"p{share * 100:g}") for share in (0.5, 0.99))),
        ),
    ),
    (
        "Consumers",
        (
            Panel("Lag, by group", "short",
                  (("sum by (consumergroup) (kafka_consumergroup_lag)", "{{consumergroup}}"),), width=12),
            Panel("Lag in seconds, by group", "s",
                  (("max by (consumergroup) (odradek_consumergroup_lag_seconds)",
                    "{{consumergroup}}"),), width=12),
        ),
    ),
    (
        "Disk",
        (
            Panel("Free", "bytes", (("odradek_log_dir_free_bytes", "{{instance}} {{directory}}"),)),
            Panel("Largest topics", "bytes", (("topk(10, kafka_log_log_size)", "{{topic}}"),)),
            Panel("Deleted by retention", "Bps",
                  (("rate(odradek_retention_deleted_bytes_total[1h])", "{{instance}}"),)),
            Panel("Compactions", "cps",
                  (("rate(odradek_cleaning_runs_total[1h])", "runs"),
                   ("rate(odradek_cleaning_failures_total[1h])", "failures"))),
            Panel("Dirtiest log", "percent",
                  (("kafka_log_logcleanermanager_max_dirty_percent", "{{instance}}"),)),
            Panel("Since retention looked", "s",
                  (("time() - odradek_retention_last_run_timestamp_seconds", "{{instance}}"),)),
        ),
    ),
)  # fmt: skip
_NAMES = re.compile(r"\b(?:kafka|odradek)_[a-z_]+")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def names() -> set[str]:
    """Of all metrics that are asked for."""
    return {
        name
        for _, panels in ROWS
        for panel in panels
        for expression, _ in panel.queries
        for name in _NAMES.findall(expression)
    }


def render() -> str:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
            }
        )
        top += 1
        left = 0
        height = 4 if row[0].kind == "stat" else 8
        for panel in row:
            if left + panel.width > 24:
                left, top = 0, top + height
            panels.append(_panel(panel, left, top, height))
            left += panel.width
        top += height
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return json.dumps(_dashboard(panels), indent=1) + "\n"


def _panel(panel: Panel, left: int, top: int, height: int) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"h": height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(65 + number), "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _dashboard(panels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": "Odradek",
        "uid": "odradek",
        "tags": ["odradek", "kafka"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }
