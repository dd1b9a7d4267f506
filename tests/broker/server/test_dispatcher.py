"""From a frame to its handler, and from whatever goes wrong to an answer or an end."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.api_versions import SERVED, ApiKey, is_flexible
from broker.protocol.codec import entity_codec
from broker.protocol.errors import MalformedRequest
from broker.protocol.framing import ReceiveBudget, Scratch
from broker.protocol.request import parse_header
from broker.protocol.schema import response_types
from broker.server.connection import Answer, CloseConnection, Connection
from broker.server.dispatcher import Dispatcher
from broker.server.handlers import HANDLERS, HOT_DECODED, HOT_HANDLERS
from tests.broker.server.build import FakeConnection
from tests.support import wire
from tests.support.by_hand import ManualTasks, ManualThreads
from tests.support.sample_messages import sample
from tests.support.wire import Struct

pytestmark = pytest.mark.interpreted  # with doubles of the connection or the dispatcher

UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR = 35, -1


class Caller:
    def __init__(self) -> None:
        self.tasks = ManualTasks()
        self.broker: Any = SimpleNamespace(
            threads=ManualThreads(),
            tasks=self.tasks,
            watchdog=SimpleNamespace(slow_handlers=0),
            cluster=None,
            scratch=Scratch(),
            receive_budget=ReceiveBudget(1 << 20),
        )
        self.dispatcher = Dispatcher(self.broker)
        self.connection = FakeConnection()

    def call(self, frame: bytes) -> Answer | None:
        """What the connection would send at once."""
        view = memoryview(bytearray(frame))
        return self.dispatcher.dispatch(cast(Connection, self.connection), parse_header(view), view)

    def late(self) -> Answer | None:
        """The answer of the request that was deferred."""
        self.tasks.run()
        (slot,) = self.connection.slots
        is_done, answer = slot.take()
        assert is_done
        return answer


@pytest.fixture
def caller() -> Caller:
    return Caller()


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What DescribeCluster does in this test."""
    behaviour: dict[str, Any] = {}
    monkeypatch.setitem(
        HANDLERS, ApiKey.DESCRIBE_CLUSTER, lambda *arguments: behaviour["do"](*arguments)
    )
    return behaviour


def describe_cluster() -> bytes:
    return wire.encode_request("describe_cluster", 1, 7, endpoint_type=1)[4:]


def decoded(answer: Answer | None) -> Struct:
    assert answer is not None
    data = b"".join(cast(list[bytes], answer))
    correlation_id, message = wire.decode_response("describe_cluster", 1, data[4:])
    assert correlation_id == 7
    return message


def response() -> object:
    types = response_types(ApiKey.DESCRIBE_CLUSTER, 1)
    return types.DescribeClusterResponse(
        throttle_time=0, error_code=ErrorCode.NONE, error_message=None, endpoint_type=1,
        cluster_id="c", controller_id=1, brokers=[], cluster_authorized_operations=0,
    )  # fmt: skip


async def later(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def test_a_response_is_encoded_at_once(caller: Caller, handler: dict[str, Any]) -> None:
    handler["do"] = lambda *_: response()
    assert decoded(caller.call(describe_cluster())).cluster_id == "c"


def test_a_coroutine_is_answered_later(caller: Caller, handler: dict[str, Any]) -> None:
    handler["do"] = lambda *_: later(response())
    assert caller.call(describe_cluster()) is None
    assert decoded(caller.late()).cluster_id == "c"


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "why"), ErrorCode.KAFKA_STORAGE_ERROR),
        (RuntimeError("a fault of ours"), UNKNOWN_SERVER_ERROR),
        (AssertionError(), UNKNOWN_SERVER_ERROR),
        (OSError("disk"), UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_a_handler_raises_is_an_answer_in_the_requests_version(
    caller: Caller, handler: dict[str, Any], error: Exception, code: int, is_late: bool
) -> None:
    def fail(*_: object) -> Any:
        if is_late:
            return later(error)
        raise error

    handler["do"] = fail
    answer = caller.call(describe_cluster())
    found = decoded(caller.late() if is_late else answer)
    assert found.error_code == code
    assert caller.connection.close_reason is None


@pytest.mark.parametrize("is_late", [False, True])
def test_a_response_that_cannot_be_encoded_harms_nobody_else(
    caller: Caller, handler: dict[str, Any], is_late: bool
) -> None:
    handler["do"] = lambda *_: later("no response") if is_late else "no response"
    if is_late:
        caller.call(describe_cluster())
        assert decoded(caller.late()).error_code == UNKNOWN_SERVER_ERROR
    else:
        with pytest.raises(CloseConnection):
            caller.call(describe_cluster())


def test_an_error_that_cannot_be_told_ends_the_connection(
    caller: Caller, handler: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("nor can this be said")

    monkeypatch.setattr("broker.server.dispatcher.error_response", fail)
    handler["do"] = lambda *_: later(KafkaError(ErrorCode.INVALID_REQUEST))
    caller.call(describe_cluster())
    caller.tasks.run()
    assert caller.connection.close_reason is not None


def test_the_rest_of_a_hot_handler_that_fails_ends_the_connection(caller: Caller) -> None:
    slot = caller.connection.defer(None)
    caller.dispatcher.spawn(slot, later(RuntimeError("a fault of ours")), "Metadata")
    caller.tasks.run()
    assert caller.connection.close_reason is not None


def test_a_hot_handler_that_fails_ends_the_connection(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setitem(HOT_HANDLERS, ApiKey.METADATA, fail)
    with pytest.raises(CloseConnection):
        caller.call(wire.encode_request("metadata", 9, 1, topics=[])[4:])


def test_requests_of_any_kind_that_fail_are_answered_in_their_version(caller: Caller) -> None:
    """The error answers themselves are tested in protocol; here that each is reached."""
    for key, versions in SERVED.items():
        if key in HOT_HANDLERS or key == ApiKey.API_VERSIONS:
            continue
        for version in range(versions.min_version, versions.max_version + 1):
            schema = wire.load_entity_schema(
                wire.api_key_map[key], version, wire.EntityType.request
            )
            out = bytearray(
                wire.encode_header(key, version, 9, "t", flexible=bool(schema.__flexible__))
            )
            values = sample(schema)
            entity_codec(schema).write(out, values)
            answer = caller.call(bytes(out))  # the broker has nothing: every handler fails
            caller.tasks.run()
            if answer is None:
                is_done, answer = caller.connection.slots[-1].take()
                assert is_done
            assert answer is not None
            (data,) = answer
            assert isinstance(data, bytes)
            assert struct.unpack_from(">ii", data) == (len(data) - 4, 9)
            wire.decode_response(key, version, data[4:])


# Large requests


def large_describe_topic_partitions() -> bytes:
    topics = [{"name": f"topic-{number}"} for number in range(3000)]
    return wire.encode_request(
        "describe_topic_partitions",
        0,
        7,
        topics=topics,
        response_partition_limit=10,
        cursor=None,
    )[4:]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_large_request_is_decoded_elsewhere_and_handled_like_any_other(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    seen: list[Any] = []
    types = response_types(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    response = types.DescribeTopicPartitionsResponse(throttle_time=3, topics=[], next_cursor=None)

    def handle(broker: Any, context: Any, request: Any) -> Any:
        seen.append((context.correlation_id, len(request.topics), request.topics[-1].name))
        return later(response) if is_late else response

    monkeypatch.setitem(HANDLERS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle)
    frame = large_describe_topic_partitions()
    scratch = caller.broker.scratch
    view = scratch.view[: len(frame)]
    view[:] = frame
    connection = cast(Connection, caller.connection)
    assert caller.dispatcher.dispatch(connection, parse_header(view), view) is None
    assert caller.connection.is_alone == [True]
    assert caller.broker.receive_budget.used_bytes == len(frame)
    scratch.data[:] = bytes(len(scratch.data))  # the next frame comes
    caller.tasks.run()
    assert seen == [(7, 3000, "topic-2999")]
    assert caller.broker.receive_budget.used_bytes == 0
    *before, (is_done, answer) = [slot.take() for slot in caller.connection.slots]
    assert before == [(True, None)] * len(before)
    assert is_done
    assert answer is not None
    data = b"".join(cast(list[bytes], answer))
    _, message = wire.decode_response("describe_topic_partitions", 0, data[4:])
    assert message.throttle_time == 3


def test_a_large_request_of_a_hot_handler_reaches_it_decoded(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(broker: Any, connection: Any, header: Any, request: Any, frame: Any) -> Any:
        return [str(len(request.topics)).encode()]

    decode, _ = HOT_DECODED[ApiKey.METADATA]
    monkeypatch.setitem(HOT_DECODED, ApiKey.METADATA, (decode, handle))
    topics = [{"name": f"topic-{number}"} for number in range(3000)]
    assert caller.call(wire.encode_request("metadata", 9, 1, topics=topics)[4:]) is None
    assert caller.late() == [b"3000"]


@pytest.mark.parametrize("api", ["metadata", "list_offsets", "delete_topics"])
def test_a_large_request_that_makes_no_sense_ends_its_connection(caller: Caller, api: str) -> None:
    version = 6
    frame = wire.encode_header(ApiKey[api.upper()], version, 5, "t", flexible=version >= 6)
    caller.call(frame + b"\xff" * 20_000)
    caller.tasks.run()
    assert caller.connection.close_reason is not None
    assert caller.broker.receive_budget.used_bytes == 0


def test_a_large_request_whose_client_has_gone_is_not_handled(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HANDLERS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, None)
    caller.call(large_describe_topic_partitions())
    caller.connection.close(None)
    caller.tasks.run()
    assert caller.broker.receive_budget.used_bytes == 0


# What is not served


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(caller: Caller) -> None:
    frame = wire.encode_header(18, 99, 5, "t", flexible=True) + b"\2x\2y\0"
    (data,) = caller.call(frame) or []
    assert isinstance(data, bytes)
    _, message = wire.decode_response("api_versions", 0, data[4:])
    assert message.error_code == UNSUPPORTED_VERSION
    assert [each.api_key for each in message.api_keys] == [18]


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (1, 3), (3, 99), (11, 10), (71, 0), (999, 0), (-1, 0), (3, -1)]
)
def test_what_is_not_served_is_refused_by_name(caller: Caller, key: int, version: int) -> None:
    flexible = is_flexible(key, version)
    frame = wire.encode_header(key, version, 5, "old client", flexible=flexible)
    with pytest.raises(CloseConnection, match=f"API {key} version {version} .*old client"):
        caller.call(frame)


@pytest.mark.parametrize("key", sorted(SERVED))
def test_a_request_without_its_body_is_malformed(caller: Caller, key: int) -> None:
    version = SERVED[ApiKey(key)].max_version
    frame = wire.encode_header(key, version, 5, "t", flexible=is_flexible(key, version))
    with pytest.raises(MalformedRequest):
        caller.call(frame)


def test_requests_are_counted(caller: Caller, handler: dict[str, Any]) -> None:
    handler["do"] = lambda *_: response()
    for _ in range(3):
        caller.call(describe_cluster())
    assert caller.dispatcher.request_counts == {ApiKey.DESCRIBE_CLUSTER: 3}


def test_a_handler_that_holds_the_loop_is_named(
    caller: Caller,
    handler: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("broker.server.dispatcher.SLOW_HANDLER_NS", -1)
    handler["do"] = lambda *_: response()
    caller.call(describe_cluster())
    assert "DescribeCluster version 1 held the loop" in caplog.text
    assert caller.broker.watchdog.slow_handlers == 1
