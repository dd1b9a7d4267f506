"""The Celery application: where messages travel, and nothing of what they ask for.

The embedded transport is files in the data directory (``appliance.transport``); ``celery_url`` names
a Redis or RabbitMQ instead. No result backend, no remote control, no events: rows tell it all.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from appliance import transport
from appliance.config import current

QUEUE = "odradek"
DIRECTORY = "celery"
"""Of the messages, in the data directory."""


def make_app(celery_url: str, data_directory: Path) -> Celery:
    transport.register()
    # No fixups: Celery's for Django puts the working directory before everything on the path.
    found = Celery("odradek", set_as_current=False, fixups=[], include=["appliance.tasks"])
    found.conf.update(
        broker_url=celery_url or f"{transport.SCHEME}://localhost/",
        broker_connection_retry_on_startup=True,
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_serializer="json",
        accept_content=["json"],
        result_expires=None,
        timezone="UTC",
        enable_utc=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        beat_max_loop_interval=5,
        beat_enable_remote_control=False,
        # Rings within a request: rather a bell that is not heard than a page that hangs.
        task_publish_retry=False,
    )
    if not celery_url:
        found.conf.broker_transport_options = {"directory": str(data_directory / DIRECTORY)}
    return found


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
_config = current().values
app = make_app(_config.celery_url.get_secret_value(), _config.data.absolute())
app.set_default()
