"""From a frame to its handler, and from whatever goes wrong to an answer in the request's version.

Two kinds of handlers (``handlers.HANDLERS``): *hot* ones take the frame and return finished
bytes; the others take a decoded request and return a response entity, now or, when they are
coroutines, later. ``except Exception`` stands here and nowhere deeper: a fault in a handler is
answered with UNKNOWN_SERVER_ERROR and logged, and harms nobody else.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.api_versions import ApiKey, is_served
from broker.protocol.error_responses import error_response, unsupported_api_versions
from broker.protocol.errors import MalformedRequest
from broker.protocol.request import RequestHeader
from broker.protocol.schema import decode_request, encode_response
from broker.server.cluster import PRIVATE_FROM
from broker.server.connection import Answer, CloseConnection, Connection, ResponseSlot
from broker.server.context import RequestContext
from broker.server.handlers import HANDLERS, HOT_DECODED, HOT_HANDLERS

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.background import Threads
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

#: A frame above this is decoded in a thread, unless it is Produce: that is mostly records, which are
#: not looked at. Many thousands of array elements may lie in it, a microsecond each.
LARGE_FRAME_BYTES: Final = 16 * 1024
#: A handler that holds the loop longer than this is named in the log.
SLOW_HANDLER_NS: Final = 50_000_000


class _Guard(AbstractContextManager[None]):
    """See ``Dispatcher.guard``."""

    __slots__ = ("_slot",)

    def __init__(self, slot: ResponseSlot) -> None:
        self._slot = slot

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        logger.error("a request that waited failed", exc_info=error, extra=caused_by("requests"))
        self._slot.fail()
        return True


class Dispatcher:
    """One for the whole broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.threads: Threads = broker.threads
        self.request_counts: dict[int, int] = {}
        #: Whether clients are served; other brokers of a cluster are before.
        self.is_open = True

    def dispatch(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> Answer | None:
        """The answer, or None when it comes later (or never, acks=0).

        Raises MalformedRequest or CloseConnection: then the connection ends.
        """
        api_key = header.api_key
        if connection.client_id is None:
            connection.client_id = header.client_id
        if not is_served(api_key, header.api_version):
            cluster = self._broker.cluster
            if cluster is not None and api_key >= PRIVATE_FROM:
                return cluster.apis.serve(connection, header, frame)
            return self._unsupported(header)
        if not self.is_open:
            raise CloseConnection("the broker is starting")
        counts = self.request_counts
        counts[api_key] = counts.get(api_key, 0) + 1
        if len(frame) > LARGE_FRAME_BYTES and api_key != ApiKey.PRODUCE:
            if not self._begin_forwarding(connection, header, frame):
                self.begin_large(connection, header, frame)
            return None
        started_ns = time.perf_counter_ns()
        try:
            hot = HOT_HANDLERS.get(api_key)
            if hot is not None:
                answer: Answer | None = hot(self._broker, connection, header, frame)
                return answer
            return self._dispatch_typed(connection, header, frame)
        except (MalformedRequest, CloseConnection):
            raise
        except Exception as error:
            logger.error(
                "API %d version %d failed", api_key, header.api_version, exc_info=error,
                extra=caused_by(connection.peer_host),
            )  # fmt: skip
            raise CloseConnection("the request failed, see above") from error
        finally:
            elapsed_ns = time.perf_counter_ns() - started_ns
            if elapsed_ns > SLOW_HANDLER_NS:
                self._report_slow(header, elapsed_ns)

    def begin_large(self, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
        """Decode the request in a thread, then handle it; nothing overtakes it meanwhile."""
        if frame.obj is self._broker.scratch.data:
            frame = memoryview(bytearray(frame))  # others receive into it meanwhile
        charge = len(frame)
        self._broker.receive_budget.charge(charge)
        slot = connection.defer(header, is_alone=True)
        self._broker.tasks.spawn(
            self._dispatch_large(connection, header, frame, slot, charge),
            ApiKey(header.api_key).wire_name,
        )

    async def _dispatch_large(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        slot: ResponseSlot,
        charge: int,
    ) -> None:
        """Decoded in a thread; from there on as any other request, behind a place of its own."""
        api_key, version = header.api_key, header.api_version
        hot = HOT_DECODED.get(api_key)
        decode = partial(decode_request, api_key) if hot is None else hot[0]
        with self.guard(slot):
            try:
                request = await self.threads.computed(
                    partial(decode, version, frame, header.body_offset)
                )
            except MalformedRequest as error:
                connection.close(str(error))
                return
            finally:
                self._broker.receive_budget.release(charge)
            if not slot.is_open and api_key != ApiKey.PRODUCE:
                return
            try:
                if hot is None:
                    answer = self._handle_typed(connection, header, request)
                else:
                    answer = hot[1](self._broker, connection, header, request, frame)
            except CloseConnection as error:
                connection.close(str(error))
                return
            # None: the handler has taken a place behind ours, which ends here without an answer.
            slot.complete(answer)

    def _unsupported(self, header: RequestHeader) -> Answer:
        if header.api_key == ApiKey.API_VERSIONS:
            # KIP-511: the answer has the layout of version 0, so that any client can read it.
            return [unsupported_api_versions(header.correlation_id)]
        raise CloseConnection(
            f"API {header.api_key} version {header.api_version} is not supported"
            f" (client id {header.client_id!r:.100})"
        )

    def _dispatch_typed(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> Answer | None:
        if self._begin_forwarding(connection, header, frame):
            return None
        request = decode_request(header.api_key, header.api_version, frame, header.body_offset)
        return self._handle_typed(connection, header, request)

    def _begin_forwarding(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> bool:
        """Pass on what only another broker can do; gives whether it is one of those."""
        cluster = self._broker.cluster
        if cluster is None or not cluster.is_forwarded(connection, header.api_key):
            return False
        slot = connection.defer(header)
        self._broker.tasks.spawn(
            self._forward(cluster, slot, header, bytes(frame)), ApiKey(header.api_key).wire_name
        )
        return True

    async def _forward(
        self, cluster: Membership, slot: ResponseSlot, header: RequestHeader, frame: bytes
    ) -> None:
        with self.guard(slot):
            if not await cluster.forward(header, frame, slot):
                key, version = header.api_key, header.api_version
                request = decode_request(key, version, memoryview(frame), header.body_offset)
                error = KafkaError(ErrorCode.NOT_CONTROLLER, "The controller cannot be reached.")
                slot.complete([self._failure(header, request, error)])

    def _handle_typed(
        self, connection: Connection, header: RequestHeader, request: Any
    ) -> Answer | None:
        context = RequestContext(connection, header)
        try:
            result = HANDLERS[header.api_key](self._broker, context, request)
        except (MalformedRequest, CloseConnection):
            raise
        except Exception as error:  # noqa: BLE001 - mapped once, here
            return [self._failure(header, request, error)]
        if inspect.iscoroutine(result):
            slot = connection.defer(header)
            self._broker.tasks.spawn(
                self._finish(slot, header, request, result), ApiKey(header.api_key).wire_name
            )
            return None
        return [self._encode(header, result)]

    async def _finish(
        self,
        slot: ResponseSlot,
        header: RequestHeader,
        request: object,
        coroutine: Coroutine[Any, Any, object],
    ) -> None:
        with self.guard(slot):
            try:
                answer = self._encode(header, await coroutine)
            except Exception as error:  # noqa: BLE001 - mapped once, here
                answer = self._failure(header, request, error)
            slot.complete([answer])

    def guard(self, slot: ResponseSlot) -> AbstractContextManager[None]:
        """For what runs on a request's behalf later: a fault in it ends the request's connection,
        instead of a client that waits for ever."""
        return _Guard(slot)

    def spawn(self, slot: ResponseSlot, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run the rest of a hot handler, which completes ``slot``, as a task."""
        self._broker.tasks.spawn(self._guarded(slot, coroutine), name)

    async def _guarded(self, slot: ResponseSlot, coroutine: Coroutine[Any, Any, None]) -> None:
        with self.guard(slot):
            await coroutine

    def _encode(self, header: RequestHeader, response: Any) -> bytes:
        return encode_response(header.api_key, header.api_version, header.correlation_id, response)

    def _failure(self, header: RequestHeader, request: Any, error: Exception) -> bytes:
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            logger.error(
                "%s version %d failed", ApiKey(header.api_key).wire_name, header.api_version,
                exc_info=error, extra=caused_by(f"{ApiKey(header.api_key).wire_name} requests"),
            )  # fmt: skip
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        return error_response(
            header.api_key, header.api_version, header.correlation_id, code, request, message
        )

    def _report_slow(self, header: RequestHeader, elapsed_ns: int) -> None:
        logger.warning(
            "%s version %d held the loop for %d ms",
            ApiKey(header.api_key).wire_name, header.api_version, elapsed_ns // 1_000_000,
            extra=caused_by(f"{ApiKey(header.api_key).wire_name} requests"),
        )  # fmt: skip
        self._broker.watchdog.slow_handlers += 1
