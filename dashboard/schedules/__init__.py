"""When jobs are due: pure arithmetic over calendars (``cron``), and plans of rows (``plan``)."""
