"""The live tail's socket: who may open it, and what it makes of what a browser sends."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from appliance.asgi import application
from dashboard.consumers import live_tail
from dashboard.models import User
from dashboard.socket_guard import BAD_MESSAGE, NOT_ALLOWED, SIGNED_OUT, TOO_MANY
from tests.support.odradek import OdradekBroker

pytestmark = pytest.mark.django_db(transaction=True)
OWN = "http://localhost:8080"


def signed_in(**fields: Any) -> tuple[User, SessionStore]:
    user = User.objects.create_user("vera", password="x", **fields)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return user, session


class Socket(WebsocketCommunicator):
    def __init__(
        self, session: str | None, origin: str | None = OWN, host: str = "localhost:8080"
    ) -> None:
        headers = [(b"host", host.encode())]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        if session is not None:
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={session}".encode()))
        super().__init__(application, "/tail/socket/", headers)

    async def opens(self) -> bool:
        return (await self.connect(timeout=10))[0]

    async def start(self, *topics: str) -> None:
        await self.send_json_to({"type": "start", "topics": topics, "filter": "", "last": 0})

    async def frame(self) -> Any:
        message = await self.receive_output(timeout=10)
        assert message["type"] == "websocket.send", message
        frame = json.loads(message["text"])
        await self.send_json_to({"type": "ack", "seq": frame["seq"]})
        return frame

    async def close_code(self, seconds: float = 10) -> int:
        """Of the close that has to come; frames before it are answered."""
        async with asyncio.timeout(seconds):
            while True:
                message = await self.receive_output(timeout=seconds)
                if message["type"] == "websocket.close":
                    return message["code"]
                sent = json.loads(message["text"])
                if sent["type"] == "frame":
                    await self.send_json_to({"type": "ack", "seq": sent["seq"]})


@pytest.fixture
def session() -> str:
    return str(signed_in()[1].session_key)


@pytest.fixture
def broker(shared_odradek: OdradekBroker, monkeypatch: pytest.MonkeyPatch) -> OdradekBroker:
    monkeypatch.setattr(settings, "ODRADEK_CLUSTER", shared_odradek.bootstrap)
    live_tail.clusters.gateway.cache_clear()
    return shared_odradek


@pytest.fixture
def topic(broker: OdradekBroker, new_topic_name: Callable[[], str]) -> str:
    name = new_topic_name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    return name


async def test_a_stranger_is_refused_before_the_socket_opens() -> None:
    assert not await Socket(None).opens()
    assert not await Socket("no-such-session-0123456789abcdef").opens()


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "localhost:8080"),
        ("null", "localhost:8080"),
        ("https://evil.example", "localhost:8080"),
        ("http://localhost.evil.example:8080", "localhost:8080"),
        ("http://localhost:8081", "localhost:8080"),
        ("https://localhost:8080", "localhost:8080"),
        ("http://localhost", "localhost:8080"),
        ("http://127.0.0.1:8080", "localhost:8080"),
        ("http://evil.example:8080", "evil.example:8080"),
    ],
)
async def test_a_page_of_another_origin_is_refused(session: str, origin: str, host: str) -> None:
    assert not await Socket(session, origin, host).opens()


async def test_the_public_address_is_an_own_origin(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ODRADEK_PUBLIC_URL", "https://logs.example")
    socket = Socket(session, "https://logs.example")

    assert await socket.opens()
    await socket.disconnect()


async def test_a_record_comes_with_every_digit_of_its_offset(
    session: str, topic: str, broker: OdradekBroker
) -> None:
    socket = Socket(session)
    assert await socket.opens()
    await socket.start(topic)
    while (await socket.frame())["run"] == 0:
        pass
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"\xff\x00", key="<b>", headers=[("h", None), ("h", b"2")])
    assert producer.flush(20) == 0
    rows: list[Any] = []
    while not rows:
        rows = (await socket.frame())["rows"]
    await socket.disconnect()

    (row,) = rows
    assert row.pop("time").isdecimal()
    assert row == {
        "topic": topic,
        "partition": 0,
        "offset": "0",
        "key": {"size": 3, "text": "<b>"},
        "value": {"size": 2, "base64": "/wA="},
        "headers": [{"name": "h", "value": None}, {"name": "h", "value": {"size": 1, "text": "2"}}],
        "header_count": 2,
    }


async def test_a_topic_that_one_may_not_read_closes_the_socket_also_at_a_change(
    topic: str, new_topic_name: Callable[[], str]
) -> None:
    _, session = await asyncio.to_thread(signed_in, readable_topics=topic)
    socket = Socket(session.session_key)
    assert await socket.opens()
    await socket.start(topic)
    assert "seq" in await socket.frame()
    await socket.start(topic, new_topic_name())

    assert await socket.close_code() == NOT_ALLOWED


def sign_out(user: User, session: SessionStore) -> None:
    session.delete()


def lose_topic(user: User, session: SessionStore) -> None:
    User.objects.filter(pk=user.pk).update(readable_topics="other-*")


def be_deactivated(user: User, session: SessionStore) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def change_password(user: User, session: SessionStore) -> None:
    user.set_password("another")
    user.save()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (sign_out, SIGNED_OUT),
        (lose_topic, NOT_ALLOWED),
        (be_deactivated, SIGNED_OUT),
        (change_password, SIGNED_OUT),
    ],
)
async def test_a_socket_ends_within_seconds_when_its_right_ends(
    topic: str, change: Callable[[User, SessionStore], None], code: int
) -> None:
    user, session = await asyncio.to_thread(signed_in)
    socket = Socket(session.session_key)
    assert await socket.opens()
    await socket.start(topic)
    await socket.frame()
    await asyncio.to_thread(change, user, session)

    assert await socket.close_code() == code
    hub, _ = live_tail._of_this_loop()
    assert hub.feed_count == 0


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "[" * 50_000,
        '{"type": "start"}',
        '{"type": "start", "topics": [1], "filter": "", "last": 0}',
        '{"type": "start", "topics": "abc", "filter": "", "last": 0}',
        '{"type": "start", "topics": [], "filter": "", "last": 1e3}',
        '{"type": "start", "topics": [], "filter": "", "last": true}',
        json.dumps({"type": "start", "topics": list("abcdefghijk"), "filter": "", "last": 0}),
        json.dumps({"type": "check", "id": 1, "filter": "x" * 2001}),
        '{"type": "ack", "seq": -1}',
        '{"type": "__class__"}',
    ],
)
async def test_nonsense_closes_the_socket(session: str, text: str) -> None:
    socket = Socket(session)
    assert await socket.opens()
    await socket.send_to(text_data=text)

    assert await socket.close_code() == BAD_MESSAGE


async def test_bytes_and_floods_close_the_socket(session: str) -> None:
    binary, flood = Socket(session), Socket(session)
    assert await binary.opens()
    await binary.send_to(bytes_data=b"\x00")
    assert await binary.close_code() == BAD_MESSAGE
    assert await flood.opens()
    for _ in range(live_tail.MAX_MESSAGES_A_SECOND + 1):
        await flood.send_json_to({"type": "pause"})
    assert await flood.close_code() == BAD_MESSAGE


async def test_sockets_are_bounded_in_all_and_for_each_person(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.socket_guard.MAX_SOCKETS_OF_USER", 1)
    first, second = Socket(session), Socket(session)
    assert await first.opens()
    assert await second.opens()
    assert await second.close_code() == TOO_MANY
    await first.disconnect()
    third = Socket(session)
    assert await third.opens()
    await third.disconnect()


async def test_a_socket_that_is_killed_leaves_no_reader_behind(session: str, topic: str) -> None:
    socket = Socket(session)
    assert await socket.opens()
    await socket.start(topic)
    await socket.frame()
    hub, _ = live_tail._of_this_loop()
    assert hub.feed_count == 1
    socket.future.cancel()
    await asyncio.wait([socket.future])

    assert hub.feed_count == 0


async def end(socket: Socket) -> None:
    """As the server ends it when the browser's address is gone: it waits no longer than it has to."""
    socket.future.cancel()
    await asyncio.wait([socket.future])


def assert_nothing_is_left() -> None:
    hub, guard = live_tail._of_this_loop()
    assert (hub.feed_count, len(hub._connections), len(guard._sockets)) == (0, 0, 0)


@pytest.mark.parametrize("when", ["at connect", "at start"])
async def test_a_tab_that_is_closed_while_the_database_is_slow_leaves_nothing(
    session: str, topic: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """C144"""
    is_asked = asyncio.Event()

    async def slow(_: Any) -> Any:
        is_asked.set()
        await asyncio.Event().wait()

    socket = Socket(session)
    if when == "at connect":
        monkeypatch.setattr(live_tail, "users_of", slow)
        await socket.send_input({"type": "websocket.connect"})
    else:
        assert await socket.opens()
        await socket.start(topic)
        await socket.frame()
        monkeypatch.setattr(live_tail, "users_of", slow)
        await socket.start(topic)
    await asyncio.wait_for(is_asked.wait(), 20)
    await end(socket)

    assert_nothing_is_left()


async def test_a_tab_that_is_closed_amid_a_flood_leaves_nothing(
    session: str, topic: str, broker: OdradekBroker
) -> None:
    """C144"""
    socket = Socket(session)
    assert await socket.opens()
    await socket.start(topic)
    states: list[str] = []
    while states != ["live"]:
        states = [one["state"] for one in (await socket.frame()).get("topics") or ()]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3_000):
        producer.produce(topic, str(number))
    await asyncio.to_thread(producer.flush, 30)
    while not (await socket.frame())["rows"]:
        pass
    await socket.disconnect()

    assert_nothing_is_left()


async def test_a_fault_of_ours_in_a_message_leaves_nothing(
    session: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C144"""

    def fail(_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    socket = Socket(session)
    assert await socket.opens()
    await socket.start(topic)
    await socket.frame()
    monkeypatch.setattr(live_tail, "parse", fail)
    await socket.send_input({"type": "websocket.receive", "text": "{}"})
    await asyncio.wait([socket.future])

    assert isinstance(socket.future.exception(), RuntimeError)
    assert_nothing_is_left()
