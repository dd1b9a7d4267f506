"""Reading and filtering of records, in child processes: ``python -m dashboard.scan``.

Records are hostile and expressions are typed by people, so neither is handled in the web process:
a child reads them, filters, cuts what is long, and tells the rest as JSON lines. It is free of
Django (it starts fast), nice, has a memory bound and a deadline of its own, ends with its parent,
and may be killed at any time: it owns nothing.

One line in, a ``request``; lines out, the last of which has ``done`` or ``failed``; then the next
line in. ``requests`` knows what goes in, ``walk`` reads in order of time both ways, ``matching``
filters, ``rendering`` cuts, ``exporting`` writes files, ``child`` is the loop.
"""
