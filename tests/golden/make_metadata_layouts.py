"""Write broker/adopt/record_layouts.py from the JSON specifications inside Kafka's jars.

    KAFKA_LIBS=... python -m tests.golden.make_metadata_layouts

Only the records that an adoption reads. Run it again for a newer Kafka; a test compares the table
with the jars where they are at hand.
"""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from broker.adopt.layout_types import ANY_VERSION, Field, Layout
from tests.support.apache import fetch_jars

TARGET = Path(__file__).resolve().parents[2] / "broker" / "adopt" / "record_layouts.py"
RECORDS = (
    "RegisterBrokerRecord",
    "UnregisterBrokerRecord",
    "TopicRecord",
    "PartitionRecord",
    "ConfigRecord",
    "PartitionChangeRecord",
    "RemoveTopicRecord",
    "DelegationTokenRecord",
    "UserScramCredentialRecord",
    "FeatureLevelRecord",
    "ClientQuotaRecord",
    "ProducerIdsRecord",
    "BrokerRegistrationChangeRecord",
    "AccessControlEntryRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveUserScramCredentialRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
    "AbortTransactionRecord",
    "RemoveDelegationTokenRecord",
)
HEAD = '''"""Layouts of Kafka's metadata records, by API key. Generated: do not edit.

Made by tests/golden/make_metadata_layouts.py from the specifications of Apache Kafka 4.4.
"""

from __future__ import annotations

from broker.adopt.layout_types import Field, Layout

LAYOUTS: dict[int, Layout] = {
'''


def specifications() -> dict[str, dict[str, Any]]:
    """Name of a record to its specification, comments taken out."""
    (jar,) = fetch_jars().glob("kafka-metadata-*.jar")
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/metadata/") and name.endswith(".json"):
                text = archive.read(name).decode()
                spec = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                found[spec["name"]] = spec
    return found


def layouts() -> dict[int, Layout]:
    found = {}
    specs = specifications()
    for name in RECORDS:
        spec = specs[name]
        assert spec["flexibleVersions"] == "0+", name
        _, last_version = _range(spec["validVersions"])
        found[spec["apiKey"]] = Layout(name, last_version, _fields(spec["fields"]))
    return dict(sorted(found.items()))


def _range(text: str | None) -> tuple[int, int]:
    if text is None or text == "none":
        return -1, -1
    if text.endswith("+"):
        return int(text[:-1]), ANY_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _fields(specs: list[dict[str, Any]]) -> tuple[Field, ...]:
    return tuple(_field(spec) for spec in specs)


def _field(spec: dict[str, Any]) -> Field:
    first, last = _range(spec["versions"])
    return Field(
        spec["name"],
        spec["type"],
        first,
        last,
        _range(spec.get("nullableVersions"))[0],
        spec.get("tag", -1),
        _default(spec),
        _fields(spec.get("fields", [])),
    )


def _default(spec: dict[str, Any]) -> object:
    """What a tagged field is when it is not there."""
    given, kind = spec.get("default"), spec["type"]
    if given == "null":
        return None
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "string":
        return given or ""
    if kind.startswith("[]"):
        return ()
    if kind in ("int8", "int16", "int32", "int64", "uint16"):
        return int(given or 0)
    return None


def render() -> str:
    lines = [HEAD]
    for key, layout in layouts().items():
        lines.append(f"    {key}: Layout({layout.name!r}, {layout.last_version}, (")
        lines += [f"        {_render_field(field)}," for field in layout.fields]
        lines.append("    )),")
    return "\n".join([*lines, "}\n"])


def _render_field(field: Field) -> str:
    parts = [repr(field.name), repr(field.kind)]
    plain = Field("", "")
    for name in ("first_version", "last_version", "nullable_from", "tag", "default"):
        value = getattr(field, name)
        if value != getattr(plain, name):
            parts.append(f"{name}={value!r}")
    if field.fields:
        parts.append("fields=(" + "".join(f"{_render_field(f)}, " for f in field.fields) + ")")
    return f"Field({', '.join(parts)})"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
    print(f"wrote {TARGET}; run `ruff format` on it")
