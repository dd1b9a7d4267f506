"""kazoo with one thread, which speaks to the loop by posting.

kazoo usually hands answers to one thread and watch events to another. Here both are posted from the
connection's own thread, with changes of the session's state between them: the loop hears of them in
the order in which they came over the wire. An ``Answer`` takes ``received`` on the loop, before
any post can run, so nothing is locked.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id, Permissions

from broker.metadata.store import Post
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_session import SavedSession

logger: Final = logging.getLogger(__name__)

#: Between attempts to connect: soon at first, as a restarted server is back within a second.
FIRST_DELAY_SECONDS: Final = 0.05
MAX_DELAY_SECONDS: Final = 1.0
#: How long one server may take to accept a connection, whatever the session's time.
CONNECT_SECONDS: Final = 3.0
RESTART_DELAY_SECONDS: Final = 1.0
#: How much of a session's time a server may take to say its first word. One that is just starting may take a connection and
#: forget it: kazoo would wait until the session has ended.
FIRST_ANSWER_SHARE: Final = 1 / 3

#: Told of kazoo's state and, when connected, of (session id, password); on kazoo's thread.
OnState = Callable[[str, tuple[int, bytes] | None], None]


def _ignore(answer: object) -> None:
    """Nobody waits for it."""


class Answer:
    """What kazoo takes for its ``AsyncResult``."""

    __slots__ = ("_post", "received")

    def __init__(self, post: Post) -> None:
        self._post = post
        #: With the answer, or the exception.
        self.received: Callable[[Any], None] = _ignore

    def rawlink(self, callback: object) -> None:
        """Of a ``sync``, the only request that kazoo itself waits for: nobody here does."""

    def set(self, value: object = None) -> None:
        self._post(lambda: self.received(value))

    def set_exception(self, exception: Exception) -> None:
        self._post(lambda: self.received(exception))


class PostingHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """See the module's docstring."""

    def __init__(self, post: Post, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._post = post
        self._tls = tls
        #: Until this connection's first answer came.
        self._most_seconds: float | None = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def async_result(self) -> Answer:
        return Answer(self._post)

    def dispatch_callback(self, callback: Callback) -> None:
        self._post(partial(callback.func, *callback.args))

    def select(self, readers: Any, writers: Any, others: Any, timeout: float | None = None) -> Any:
        """What TLS has decrypted already does not show on the socket."""
        pending = [each for each in readers if getattr(each, "pending", int)()]
        if pending:
            return pending, [], []
        most = self._most_seconds
        if most is not None and readers:
            timeout = most if timeout is None else min(timeout, most)
        found = super().select(readers, writers, others, timeout)
        if found[0]:
            self._most_seconds = None
        return found

    def create_connection(self, address: Any, hostname: str, timeout: float, **_: Any) -> Any:
        """Of the wire; the handshake is ours, as kazoo's leaves the socket of one that failed open."""
        self._most_seconds = timeout * FIRST_ANSWER_SHARE  # kazoo gives the session's
        wire = super().create_connection(address=address, timeout=min(CONNECT_SECONDS, timeout))
        if self._tls is None:
            return wire
        try:
            return self._tls.wrap_socket(wire, server_hostname=hostname)
        except OSError:
            wire.close()
            raise

    def spawn(self, func: Callable[..., None], *arguments: Any, **options: Any) -> threading.Thread:
        thread = threading.Thread(
            target=self._run, args=(func, *arguments), kwargs=options, name="kazoo", daemon=True
        )
        thread.start()
        return thread

    def _run(self, func: Callable[..., None], *arguments: Any, **options: Any) -> None:
        """kazoo's loop leaves by an exception when it is stopped between two attempts to connect,
        and at anything that it did not expect: then it begins again, with a new session."""
        while self._running:
            try:
                func(*arguments, **options)
            except InterruptedError:
                return
            except Exception:
                logger.exception("the connection to ZooKeeper failed")
                self.sleep_func(RESTART_DELAY_SECONDS)
            else:
                return


def new_client(
    address: ZooKeeperAddress,
    post: Post,
    on_state: OnState,
    session: SavedSession | None = None,
) -> KazooClient:
    """A client that was not started yet."""
    handler = PostingHandler(post, tls_context(address) if address.is_tls else None)
    client = KazooClient(
        **_options(address),
        client_id=session,
        handler=handler,
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=FIRST_DELAY_SECONDS,
            max_delay=MAX_DELAY_SECONDS,
            sleep_func=handler.sleep_func,
        ),
    )
    client.add_listener(lambda state: on_state(state, client.client_id))
    return client


def close_session(address: ZooKeeperAddress, session: SavedSession) -> bool:
    """Blocks: end a session that another process had. One that has expired is none; gives whether
    a server said so."""
    client = new_client(address, lambda call: None, lambda state, client_id: None, session)
    is_connected = client.start_async().wait(address.connection_timeout_ms / 1000)
    client.stop()
    client.close()
    return bool(is_connected)


def _options(address: ZooKeeperAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "hosts": address.hosts,
        "timeout": address.session_timeout_ms / 1000,
    }
    if address.digest:
        options["auth_data"] = [("digest", address.digest)]
        # The creator's, that is: whoever has the digest.
        options["default_acl"] = [ACL(Permissions.ALL, Id("auth", ""))]
    return options


def tls_context(address: ZooKeeperAddress) -> ssl.SSLContext:
    """Raises ``OSError`` (``ssl.SSLError``) when a file is missing or no PEM."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=address.trust_file)
    context.check_hostname = address.is_host_name_checked
    if address.certificate_file:
        context.load_cert_chain(address.certificate_file, password=address.key_password)
    return context
