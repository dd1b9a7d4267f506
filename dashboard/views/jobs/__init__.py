"""The Jobs pages: schedules, and runs with their logs."""
