"""What bad bytes raise. Both end the connection that sent them, and only that one."""

from __future__ import annotations


class MalformedRequest(Exception):
    """The bytes of one frame are no request of the API and version that its header names."""


class TooManyElements(MalformedRequest):
    """More array elements than are allowed, or than whoever asked wants to decode at once."""


class FrameError(Exception):
    """The length prefix of a frame is negative or above the limit: the stream is lost."""
