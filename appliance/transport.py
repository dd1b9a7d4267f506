"""Celery's messages through files in the data directory (``appliance.mailbox``), as a transport of kombu.

Registered as ``files://``. One direct exchange in which a routing key is a queue's name: no table of
bindings is kept, no fanout, no priorities. A message that cannot be read is thrown away with a
warning, rather than ending the worker that meets it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, virtual

from appliance.mailbox import Mailbox, MailboxFull

logger = logging.getLogger(__name__)

SCHEME = "files"


class Channel(virtual.Channel):
    supports_fanout = False
    do_restore = True

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._mailbox = Mailbox(Path(connection.client.transport_options["directory"]))
        self._taken: dict[str, Path] = {}
        """Of messages that are not acknowledged, by delivery tag."""

    def give_back(self) -> int:
        return self._mailbox.give_back()

    def close(self) -> None:
        super().close()  # restores what is not acknowledged
        self._mailbox.close()

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)
        self._release(delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().basic_reject(delivery_tag, requeue)  # puts a copy in line first
        self._release(delivery_tag)

    def _restore(self, message: Any) -> None:
        super()._restore(message)
        self._release(message.delivery_tag)

    def _release(self, delivery_tag: str) -> None:
        taken = self._taken.pop(delivery_tag, None)
        if taken is not None:
            self._mailbox.discard(taken)

    # What a virtual channel asks of its store.

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        return [routing_key or default or exchange]

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        try:
            self._mailbox.put(queue, json.dumps(message).encode())
        except (OSError, MailboxFull) as error:
            raise ChannelError(f"the message cannot be written: {error}") from error

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        while (found := self._mailbox.take(queue)) is not None:
            path, data = found
            try:
                message: dict[str, Any] = json.loads(data)
                self._taken[message["properties"]["delivery_tag"]] = path
            except (ValueError, KeyError, TypeError):
                logger.warning("the message %s cannot be read and is thrown away", path.name)
                self._mailbox.discard(path)
            else:
                return message
        raise Empty

    def _size(self, queue: str) -> int:
        return self._mailbox.size(queue)

    def _purge(self, queue: str) -> int:
        return self._mailbox.purge(queue)


class Transport(virtual.Transport):
    Channel = Channel
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct"])
    )
    default_port: Any = 0
    polling_interval = 0.5
    driver_type = driver_name = SCHEME
    global_state = virtual.BrokerState()

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.state = self.global_state

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Celery asks for two seconds, and only then looks at whether it shall stop."""
        super().drain_events(connection, timeout and min(timeout, self.polling_interval))

    def driver_version(self) -> str:
        return "1"


def register() -> None:
    TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
