"""The Kafka protocol as bytes: frames in, typed requests; typed responses, frames out.

No storage and no sockets here. ``api_versions`` is the one table of what is served; ``framing``
cuts a byte stream into frames; ``request`` reads the header; ``schema`` is the way to every
message by API and version; ``hot`` has straight-line codecs for what runs per batch.

Bad bytes from a client only ever raise ``MalformedRequest`` or ``FrameError``.
"""
