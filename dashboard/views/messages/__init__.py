"""Pages about records: the browser of a topic, one record, raw bytes."""
