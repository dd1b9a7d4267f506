"""The REST API: the pages' own services and selectors, as JSON, with its schema and documentation.

Numbers of 64 bits are JSON integers; a time is milliseconds since 1970 (``x_ms``) and the same moment
as RFC 3339 in UTC (``x_time``). ``null`` is what the cluster does not tell. Under ``/api/v1/``.
"""
