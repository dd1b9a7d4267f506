"""Bounds on what one request may make the broker build, whatever its bytes claim.

A frame may have 100 MiB (``socket.request.max.bytes``), and two bytes can be an array element of
a hundred bytes in memory: without these limits one frame could cost gigabytes and tens of seconds.
Record data is never counted: it stays a slice of the frame.
"""

from __future__ import annotations

#: Array elements and tagged fields in one request, at all levels together.
MAX_REQUEST_ELEMENTS = 100_000
#: Tagged fields in one section of a header or of a hot request. Kafka 4.4 knows at most three.
MAX_TAGGED_FIELDS = 64
