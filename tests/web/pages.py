"""The address of every page, with something on it; `pages` in conftest.py makes it once for a file."""

import json

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from tests.support.web import WebProcess

TOPIC, GROUP = "accessible", "accessible readers"
NOT_PAGES = {
    "healthz", "readyz", "broker_start", "samples", "topics_csv", "topic_names", "messages_check",
    "messages_scan", "record_raw", "export_file", "tail_topics", "groups_csv", "alerts_open", "alert_delivery", "alert_prometheus",
    "audit_csv", "schedule_preview", "job_run_log", "openapi-json", "report_chart", "report_file",
}  # fmt: skip
"""Files, figures, and parts that a page asks for: what they hold is looked at in their pages."""
_SWAGGER = "Swagger UI's own markup; test_api_docs.py opens it"
NOT_OURS = {"openapi-view": _SWAGGER, "api_docs": _SWAGGER}
_MAKE = """
import json, sys
from dashboard.models import AlertChannel, AlertRule, AlertDelivery, User
from dashboard.services import audit
ada = User.objects.get(username="ada")
entry = audit.record(audit.Actor("ada", "page", ada), "topic.settings", "accessible",
                     before={"retention.ms": "1"}, after={"retention.ms": "2"})
channel, _ = AlertChannel.objects.get_or_create(name="accessible", kind="webhook",
                                                url="http://127.0.0.1:9/", is_on=False)
AlertChannel.objects.get_or_create(name="accessible too", kind="webhook",
                                   url="http://127.0.0.1:9/", is_on=False)
rule = AlertRule.objects.first()
from django.utils import timezone
now = timezone.now()
AlertDelivery.objects.get_or_create(uid="accessible", defaults={
    "channel": channel, "event": "test", "body": {}, "next_at": now, "created_at": now,
    "state": "failed"})
from dashboard.models import JobRun
from dashboard.services import schedules
schedules.make_missing()
schedule = schedules.ours().get(name="Retention of all topics")
made = dict(job="retention", trigger="schedule", schedule=schedule, queued_at=now, started_at=now)
JobRun.objects.create(state="failed", finished_at=now, error="the broker does not answer", **made)
run = JobRun.objects.create(state="ok", finished_at=now, result={
    "segments": 3, "bytes": 5000, "left_out": 0, "topics": {"accessible": {"segments": 3, "bytes": 5000,
    "reasons": {"time": {"segments": 3, "bytes": 5000}}}}}, **made)
from dashboard.models import JobRun, Report
from dashboard.spark import results
Report.objects.get_or_create(name="accessible", defaults={
    "kind": "sums-by-key", "topics": "accessible", "parameters": {"key": "@key", "amount": "amount"}})
for number in (1, 2):
    report_run = JobRun.objects.create(
        job="report", target="accessible", trigger="person", state="ok", queued_at=now,
        started_at=now, finished_at=now, parameters={"ranges": [["accessible", 0, 0, 3, 0, 3]]},
        result={"row_count": 2, "csv_bytes": 9, "parquet_bytes": 9, "schema": "`amount` bigint",
                "gaps": [["accessible", 0, 0, 1]], "compacted": ["accessible"],
                "read": {"records": 3, "not_parsed": 1, "tombstones": 0, "first_not_parsed":
                         {"topic": "accessible", "partition": 0, "offset": 1}}})
    results.complete(results.begin("accessible", report_run.pk))
    (results.directory_of("accessible", report_run.pk) / "rows.json").write_text(json.dumps({
        "columns": [{"name": "key", "type": "string"}, {"name": "records", "type": "bigint"},
                    {"name": "sum", "type": "decimal(38,6)"}],
        "rows": [["a", 2, str(10 * number)], ["b", 1, None]]}))
print(json.dumps({"run": run.pk, "schedule": schedule.pk, "report_run": report_run.pk, "user": ada.pk, "entry": entry.pk, "channel": channel.pk,
                  "rule": rule.pk if rule else 0}))
"""


def make_pages(web: WebProcess) -> dict[str, str]:
    """The address of each page, with something on it."""
    gateway = Gateway(web.environment["ODRADEK_CLUSTER"])
    gateway.create_topics([TOPIC], partitions=2, replication_factor=1)
    with_headers = [("trace", b"1")]
    writer = gateway.writer(TOPIC)
    for number in range(3):
        writer.send(number, b'{"amount": 12345678901234567890}', b"key", with_headers, 0)
    writer.flush(20)
    gateway.groups.alter_offsets(GROUP, {TopicPartition(TOPIC, 0): 1})
    ids: dict[str, int] = json.loads(web.run_python(_MAKE))
    group = f"id={GROUP.replace(' ', '+')}"
    return {
        "login": "login/",
        "password_change": "account/password/",
        "api_tokens": "account/tokens/",
        "overview": "",
        "jump": "jump/?to=accessible",
        "topics": "topics/",
        "topic_create": "topics/~create/",
        "topics_delete": f"topics/~delete/?topic={TOPIC}",
        "topics_empty": f"topics/~empty/?topic={TOPIC}",
        "topic": f"topics/{TOPIC}/",
        "topic_groups": f"topics/{TOPIC}/groups/",
        "topic_settings": f"topics/{TOPIC}/settings/",
        "topic_setting": f"topics/{TOPIC}/settings/retention.ms/",
        "topic_produce": f"topics/{TOPIC}/produce/",
        "topic_snippets": f"topics/{TOPIC}/connect/",
        "topic_danger": f"topics/{TOPIC}/danger/",
        "topic_partitions_add": f"topics/{TOPIC}/partitions/",
        "topic_messages": f"topics/{TOPIC}/messages/",
        "record": f"topics/{TOPIC}/0/0/",
        "exports": "exports/",
        "reports": "reports/",
        "report_create": f"reports/new/?kind=events-over-time&topic={TOPIC}",
        "report": "reports/accessible/",
        "report_change": "reports/accessible/change/",
        "report_run": f"reports/accessible/runs/{ids['report_run']}/",
        "tail": f"tail/?topic={TOPIC}",
        "groups": "groups/",
        "group": f"groups/detail?{group}",
        "group_reset": f"groups/reset?{group}",
        "transactions": "transactions/",
        "transaction_abort": "transactions/abort?id=accessible&producer=1",
        "transaction_abort_hanging": (
            f"transactions/abort-hanging?topic={TOPIC}&partition=0&producer=1&start=0"
        ),
        "brokers": "brokers/",
        "broker": "brokers/1/",
        "broker_setting": "brokers/1/settings/log.retention.ms",
        "moves": "brokers/moves/",
        "moves_plan": f"brokers/moves/plan?what=move&topic={TOPIC}&partition=0&replicas=1",
        "moves_cancel": f"brokers/moves/cancel?topic={TOPIC}&partition=0",
        "leaders_elect": f"brokers/moves/elect?topic={TOPIC}&partition=0",
        "problems": "problems/",
        "jobs": "jobs/",
        "job_runs": "jobs/runs/",
        "job_run": f"jobs/runs/{ids['run']}/",
        "schedule_create": "jobs/schedules/new/?job=retention",
        "schedule": f"jobs/schedules/{ids['schedule']}/",
        "retention": "retention/",
        "retention_topic": f"retention/{TOPIC}/",
        "storage": "storage/",
        "alerts": "alerts/",
        "alert_history": "alerts/history/",
        "alert_deliveries": "alerts/deliveries/",
        "alert_rule_create": "alerts/rules/new/?kind=group_lag",
        "alert_rule": f"alerts/rules/{ids['rule']}/",
        "alert_channel_create": "alerts/channels/new/?kind=webhook",
        "alert_channel": f"alerts/channels/{ids['channel']}/",
        "alert_silence_create": "alerts/silences/new/",
        "audit": "audit/",
        "audit_entry": f"audit/{ids['entry']}/",
        "users": "users/",
        "user_add": "users/add/",
        "user": f"users/{ids['user']}/",
    }
