"""Sends a file, whole or a range of it, piece by piece: what is in memory is one piece a reader.

The web server waits for slow readers (``appliance.paced_server``), so a file of any size can be
sent. A name that is deleted meanwhile does not matter: the file stays open.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header

PIECE_BYTES: Final = 256 * 1024
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class NoSuchRange(ValueError):
    """The file ends before the range begins."""


def send_file(
    request: HttpRequest, path: Path, name: str, content_type: str = "application/octet-stream"
) -> HttpResponseBase:
    """Always to be saved, never shown: what people wrote is not trusted as a page of ours."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise Http404("The file is gone: it was kept for its time, or made room.") from None
    size = found.st_size
    etag = f'"{found.st_mtime_ns:x}-{size:x}"'
    wanted = request.headers.get("Range", "")
    if request.headers.get("If-Range", etag) != etag:
        wanted = ""
    try:
        chosen = chosen_range(wanted, size)
    except NoSuchRange:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    start, length = chosen or (0, size)
    response: HttpResponseBase
    if request.method == "HEAD":
        response = HttpResponse(content_type=content_type)
    else:
        response = StreamingHttpResponse(_pieces(path, start, length), content_type=content_type)
    response.status_code = 200 if chosen is None else 206
    if chosen is not None:
        response["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    response["Content-Length"] = str(length)
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-store"
    # Compressing would cost the length, and with it the ranges.
    response["Content-Encoding"] = "identity"
    disposition = content_disposition_header(True, name)
    assert disposition is not None
    response["Content-Disposition"] = disposition
    return response


def chosen_range(text: str, size: int) -> tuple[int, int] | None:
    """(start, length) of a Range header; None: the whole. Several ranges at once are not served."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.group(1) == found.group(2) == "":
        return None
    first, last = found.groups()
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise NoSuchRange
        return size - length, length
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if start >= size:
        raise NoSuchRange
    return (start, end - start + 1) if end >= start else None


async def _pieces(path: Path, start: int, length: int) -> AsyncIterator[bytes]:
    descriptor = await asyncio.to_thread(os.open, path, os.O_RDONLY)
    try:
        position, end = start, start + length
        while position < end:
            count = min(PIECE_BYTES, end - position)
            data = await asyncio.to_thread(os.pread, descriptor, count, position)
            if not data:
                return
            yield data
            position += len(data)
    finally:
        os.close(descriptor)
