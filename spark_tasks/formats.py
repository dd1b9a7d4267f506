"""Values into fields. What cannot be read is marked, so that it can be counted, never just null.

Records come with ``topic, partition, offset, timestamp, key, value``; they leave with ``data`` (a
struct), ``is_tombstone`` and ``is_parsed``. A record whose value is null is a tombstone, and neither
parsed nor a failure.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from spark_tasks.job import Format
from spark_tasks.lazy import functions as F
from spark_tasks.lazy import types as T
from spark_tasks.report import ReportError

CORRUPT: Final = "_not_parsed"
_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


def parse(records: Any, chosen: Format, sample: Any) -> tuple[Any, str]:
    """(records with ``data``, the schema of ``data`` as DDL). Raises ReportError.

    ``sample``: the first records of the same range, from which a schema of JSON is inferred.
    """
    if chosen.kind == "json" and not chosen.schema.strip():
        chosen = replace(chosen, schema=ddl_of(_infer_json(sample)))
    is_tombstone = F.col("value").isNull()
    if chosen.kind == "none":
        found = records.withColumn("data", F.struct(F.lit(None).cast("string").alias("nothing")))
        return _marked(found, is_tombstone, F.lit(True)), ""
    reader = {"json": _json, "csv": _csv, "regex": _regex, "avro": _avro}.get(chosen.kind)
    if reader is None:
        raise ReportError(f"no format is called {chosen.kind!r}: json, csv, regex, avro, none")
    data, is_parsed, ddl = reader(records, chosen)
    return _marked(records.withColumn("data", data), is_tombstone, is_parsed), ddl


def _marked(records: Any, is_tombstone: Any, is_parsed: Any) -> Any:
    return records.withColumn("is_tombstone", is_tombstone).withColumn(
        "is_parsed", ~is_tombstone & F.coalesce(is_parsed, F.lit(False))
    )


def schema_of(ddl: str) -> Any:
    """Raises ReportError with what Spark says about it."""
    try:
        found = T.StructType.fromDDL(ddl)
    except Exception as error:  # noqa: BLE001 - Py4J's, which is here only once Spark is
        raise ReportError(f"the schema cannot be read: {str(error).splitlines()[0]}") from None
    if not len(found):
        raise ReportError("the schema has no field")
    return found


def ddl_of(schema: Any) -> str:
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema)


def _with_corrupt(schema: Any) -> Any:
    return T.StructType([*schema.fields, T.StructField(CORRUPT, T.StringType())])


def _text() -> Any:
    # Invalid UTF-8 would silently become U+FFFD, or an error: such a value is not parsed.
    return F.try_validate_utf8(F.col("value").cast("string"))


def _json(records: Any, chosen: Format) -> tuple[Any, Any, str]:
    schema = schema_of(chosen.schema)
    text = _text()
    read = F.from_json(
        text, _with_corrupt(schema), {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    )
    data = F.transform(F.array(read), lambda each: _fields_of(each, schema))[0]
    # Jackson stops at the end of the first value: whatever follows would go unseen. Only where an
    # object may follow an object the text is gone through once more.
    is_one_object = text.rlike(r"(?s)^\s*\{.*\}\s*$") & (
        ~text.rlike(r"(?s)\}.*\{")
        | (F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1)
    )
    is_parsed = F.coalesce(is_one_object, F.lit(False)) & read[CORRUPT].isNull()
    return data, is_parsed, ddl_of(schema)


def _fields_of(column: Any, schema: Any) -> Any:
    return F.struct(*(column[each.name].alias(each.name) for each in schema))


def _infer_json(sample: Any) -> Any:
    texts = sample.select(_text().alias("value")).where("value IS NOT NULL")
    reader = sample.sparkSession.read.option("columnNameOfCorruptRecord", CORRUPT)
    found = reader.json(texts)
    fields = [each for each in found.schema.fields if each.name != CORRUPT]
    if not fields:
        raise ReportError(
            "no field was found: the first records of the range are not JSON objects. "
            "Choose another format, or give the schema."
        )
    return T.StructType(fields)


def _csv(records: Any, chosen: Format) -> tuple[Any, Any, str]:
    schema = schema_of(chosen.schema)
    if len(chosen.separator) != 1:
        raise ReportError("the separator is one character")
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "sep": chosen.separator,
        "multiLine": "true",
    }
    text = _text()
    read = F.from_csv(text, ddl_of(_with_corrupt(schema)), options)
    data = F.transform(F.array(read), lambda each: _fields_of(each, schema))[0]
    return data, text.isNotNull() & read[CORRUPT].isNull(), ddl_of(schema)


def _regex(records: Any, chosen: Format) -> tuple[Any, Any, str]:
    """Named groups are the fields, all text unless the schema gives them a type."""
    names = _GROUP.findall(chosen.expression)
    if not names:
        raise ReportError("the expression has no named group such as (?<status>[0-9]+)")
    wanted = schema_of(chosen.schema) if chosen.schema.strip() else None
    kinds = {each.name: each.dataType.simpleString() for each in wanted or ()}
    if unknown := sorted(kinds.keys() - set(names)):
        raise ReportError(f"the schema has a field that is no group: {unknown[0]}")
    text = _text()
    fields, is_parsed = [], text.rlike(chosen.expression)
    for name in names:
        number = _group_number(chosen.expression, name)
        found = F.when(is_parsed, F.regexp_extract(text, chosen.expression, number))
        kind = kinds.get(name, "string")
        value = found.try_cast(kind)
        is_parsed = is_parsed & (found.isNull() | (found == "") | value.isNotNull())
        fields.append(value.alias(name))
    ddl = ", ".join(f"`{name}` {kinds.get(name, 'string')}" for name in names)
    return F.struct(*fields), is_parsed, ddl


def _group_number(expression: str, name: str) -> int:
    """Java's number of a named group: every opening bracket that captures, from the left."""
    number, position, is_class = 0, 0, False
    while position < len(expression):
        character = expression[position]
        if character == "\\":
            position += 1
        elif character == "[":
            is_class = True
        elif character == "]":
            is_class = False
        elif character == "(" and not is_class:
            rest = expression[position + 1 :]
            named = _GROUP.match(expression, position)
            if named is not None or not rest.startswith("?"):
                number += 1
            if named is not None and named[1] == name:
                return number
        position += 1
    raise ReportError(f"the group {name} was not found")


def _avro(records: Any, chosen: Format) -> tuple[Any, Any, str]:
    from pyspark.sql.avro.functions import from_avro

    try:
        document = json.loads(chosen.schema)
    except ValueError as error:
        raise ReportError(f"the Avro schema is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("type") != "record":
        raise ReportError("the Avro schema has to be a record")
    value = F.col("value")
    if chosen.skip_bytes:
        value = F.substring(value, chosen.skip_bytes + 1, 2**31 - 1)
    read = from_avro(value, chosen.schema, {"mode": "PERMISSIVE"})
    names = [str(each["name"]) for each in document["fields"]]
    # Of a record that cannot be read, from_avro makes one whose fields are all null.
    is_parsed = F.greatest(*(read[name].isNotNull() for name in [*names, names[0]]))
    return read, is_parsed, json.dumps(document)
