"""What the dashboard stores about itself; what it knows of the cluster it asks the cluster for."""

from dashboard.models.alert import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AlertSilence,
    Severity,
)
from dashboard.models.api_token import ApiToken
from dashboard.models.audit import AuditEntry
from dashboard.models.job_run import JobMark, JobRun
from dashboard.models.lease import Lease
from dashboard.models.report import Report
from dashboard.models.saved_filter import SavedFilter
from dashboard.models.user import Role, User

__all__ = [
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertRule",
    "AlertSilence",
    "ApiToken",
    "AuditEntry",
    "JobMark",
    "JobRun",
    "Lease",
    "Report",
    "Role",
    "SavedFilter",
    "Severity",
    "User",
]
