"""How results and hints are written."""

from dashboard.models import JobRun
from dashboard.templatetags import show


def test_a_result_is_written_with_its_units() -> None:
    def written(**result: object) -> str:
        return show.run_outcome(JobRun(job="any", state="ok", result=result)).replace("\u202f", " ")

    assert written(row_count=1240000, csv_bytes=9, read={"records": 3}) == (
        "1 240 000 rows of 3 records"
    )
    assert written(row_count=1) == "1 row"
    assert written(segments=1, bytes=5, topics={"a": {}, "b": {}}) == "1 segment, 5 B of 2 topics"
    why = {"a": {"reasons": {"time": {}, "size": {}}}, "b": {"reasons": {"size": {}}}}
    assert written(segments=3, bytes=5, topics=why) == (
        "3 segments, 5 B of 2 topics: too much, too old"
    )
    compacted = {"a": {"bytes_before": 2048, "bytes_after": 5}}
    assert written(uncleanable=[1], topics=compacted) == (
        "2.00 KiB became 5 B in 1 topic, 1 partition stuck"
    )
    assert written(audit_rows=12, freed_bytes=2048, note="x") == (
        "audit rows: 12, freed: 2.00 KiB, note: x"
    )
    assert written() == ""


def test_what_one_types_is_code_and_markup_is_text() -> None:
    assert show.with_code("run `a <b>` or c") == "run <code>a &lt;b&gt;</code> or c"
    assert show.with_code("<i>") == "&lt;i&gt;"
