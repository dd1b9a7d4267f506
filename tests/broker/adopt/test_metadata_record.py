"""Records as Kafka wrote them (tests/golden/metadata_log), and records made by hand."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from broker.adopt.layout_types import Field
from broker.adopt.metadata_log import read_metadata
from broker.adopt.metadata_record import MalformedRecord, decode_record
from broker.adopt.record_layouts import LAYOUTS
from broker.metadata.znodes import topic_id_text
from tests.broker.adopt.kafka_directory import frame, int32, text, uvarint
from tests.golden import make_metadata_layouts
from tests.support.apache import libs_directory

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "metadata_log"


def as_kafka_prints(fields: tuple[Field, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Values under the names of Kafka's JSON, ids in base64, defaults of tagged fields left out."""
    printed = {}
    for field in fields:
        value = values[field.name]
        if field.tag >= 0 and value == field.default:
            continue
        name = field.name[0].lower() + field.name[1:]
        printed[name] = _printed(field, value)
    return printed


def _printed(field: Field, value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return topic_id_text(value)
    if isinstance(value, tuple):
        return [_printed(field, item) for item in value]
    if isinstance(value, dict):
        return as_kafka_prints(field.fields, value)
    return value


def expected() -> list[dict[str, Any]]:
    decoded = json.loads((GOLDEN / "decoded.json").read_text())
    start = decoded["checkpoint_end_offset"]
    log = decoded["log"]
    # The log's file begins at offset 0 and with one control record, which holds no payload.
    found: list[dict[str, Any]] = decoded["checkpoint"] + log[start - 1 :]
    return found


def test_every_record_reads_as_in_kafkas_own_tool() -> None:
    history = read_metadata(GOLDEN)
    wanted = expected()
    assert len(history.payloads) == len(wanted)
    kinds = set()
    for payload, printed in zip(history.payloads, wanted, strict=True):
        record = decode_record(payload)
        if record is None:
            assert printed["type"] in ("NO_OP_RECORD", "REGISTER_CONTROLLER_RECORD")
            continue
        layout = next(each for each in LAYOUTS.values() if each.name == record.name)
        kinds.add(printed["type"])
        data = printed["data"]
        if printed["type"] == "USER_SCRAM_CREDENTIAL_RECORD":
            data = {name: value for name, value in data.items() if name in ("name", "mechanism")}
            values = {name: record.values[name] for name in ("Name", "Mechanism")}
            fields = tuple(field for field in layout.fields if field.name in values)
            assert as_kafka_prints(fields, values) == data
            continue
        assert as_kafka_prints(layout.fields, dict(record.values)) == data
        assert record.version == printed["version"]
    assert kinds >= {
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "REMOVE_TOPIC_RECORD",
        "CONFIG_RECORD",
        "FEATURE_LEVEL_RECORD",
        "PRODUCER_IDS_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "ACCESS_CONTROL_ENTRY_RECORD",
        "CLIENT_QUOTA_RECORD",
    }


@pytest.mark.skipif(not libs_directory().is_dir(), reason="judge missing: Kafka's jars")
def test_the_table_is_what_kafkas_jars_specify() -> None:
    assert make_metadata_layouts.layouts() == LAYOUTS


def test_a_setting_may_be_taken_away() -> None:
    record = decode_record(frame(4, 0, b"\x02" + text("t") + text("retention.ms") + b"\0" + b"\0"))
    assert record is not None
    assert record.values["Value"] is None


def test_tagged_fields_have_their_default_or_what_is_there() -> None:
    topic_id = uuid.uuid4().bytes
    body = int32(3) + topic_id
    record = decode_record(frame(5, 2, body + b"\0"))
    assert record is not None
    assert (record.values["Leader"], record.values["Isr"]) == (-2, None)
    isr = b"\x02" + int32(7)
    leader = int32(7)
    unknown = b"abc"
    tags = b"\x03" + b"\0" + uvarint(len(isr)) + isr + b"\x01\x04" + leader
    tags += uvarint(200) + uvarint(len(unknown)) + unknown
    record = decode_record(frame(5, 2, body + tags))
    assert record is not None
    assert (record.values["Leader"], record.values["Isr"]) == (7, (7,))


def test_a_field_of_a_later_version_has_its_default_in_an_earlier_one() -> None:
    one = b"\x02" + (1).to_bytes(4, "big")
    body = (0).to_bytes(4, "big") + uuid.uuid4().bytes + one + one + b"\x01\x01"
    body += (1).to_bytes(4, "big") + (5).to_bytes(4, "big") + (6).to_bytes(4, "big")
    record = decode_record(frame(3, 0, body + b"\0"))
    assert record is not None
    assert (record.values["LeaderEpoch"], record.values["Directories"]) == (5, ())


def test_a_kind_that_nobody_reads_is_passed_over() -> None:
    assert decode_record(frame(20, 0, b"\0")) is None
    assert decode_record(frame(99, 7, b"whatever")) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\x02\x00",
        frame(2, 1, b""),
        frame(2, 0, text("t")),
        frame(2, 0, text(None) + bytes(16) + b"\0"),
        frame(2, 0, text("t") + bytes(16) + b"\0" + b"more"),
        frame(2, 0, uvarint(1 << 30) + b"t"),
        frame(2, 0, b"\x02\xff" + bytes(16) + b"\0"),
        frame(2, 0, b"\xff" * 12),
        frame(3, 0, bytes(20) + uvarint(1 << 31)),
    ],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(data)
