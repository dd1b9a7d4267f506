"""The tool's own arithmetic: bars, medians, formats. No broker runs here."""

from dataclasses import replace

import pytest

from tests.bench import __main__ as bench
from tests.bench import loop_lag, report
from tests.bench.java_client import read_summary
from tests.bench.line import Figure, Line, at_least, at_most, value_at_most
from tests.bench.report import LineResult


def test_a_ratio_bar_compares_with_kafka_in_the_same_run():
    assert at_least(4).is_met(1000, 4000)
    assert not at_least(4).is_met(1000, 3999)
    assert at_most(1 / 6).is_met(600, 100)
    assert not at_most(1 / 6).is_met(600, 101)


def test_a_ratio_bar_is_not_met_without_kafkas_figure():
    assert not at_least(4).is_met(None, 1e9)


def test_a_value_bar_needs_no_kafka():
    assert value_at_most(2).is_met(None, 2)
    assert not value_at_most(2).is_met(100, 2.1)


def result_of(bar, kafka, odradek):
    figure = Figure("rate", "", "req/s", bar)
    rounds = {
        "kafka": [{"rate": value} for value in kafka],
        "odradek": [{"rate": value} for value in odradek],
    }
    return LineResult(Line("tiny", "tiny requests", figure), rounds), figure


def test_the_table_shows_medians_ratio_and_verdict():
    result, figure = result_of(at_least(4), [90, 100, 5000], [800, 10, 700])
    row = report.row(result, figure, is_first=True)
    assert row == (
        "`tiny` tiny requests",
        "100 req/s",
        "700 req/s",
        "7x",
        "at least 4x",
        "yes",
        "-",
    )


def test_a_missed_bar_is_named():
    result, _ = result_of(at_least(4), [100], [399])
    assert report.missed([result]) == ["tiny"]


def test_a_line_without_a_figure_of_ours_misses_its_bar():
    result, _ = result_of(at_least(4), [100], [])
    assert report.missed([result]) == ["tiny"]


@pytest.mark.parametrize(
    ("ratio", "text"), [(7.04, "7x"), (1.34, "1.3x"), (1 / 6, "1/6"), (1 / 13.4, "1/13"), (0, "0")]
)
def test_ratios_read_as_times_or_as_a_part(ratio, text):
    assert report.format_ratio(ratio) == text


def test_one_side_alone_owes_nothing_to_the_other():
    result, figure = result_of(at_least(4), [], [400])
    assert result.is_met(figure) is None


def test_the_lag_is_found_wherever_the_answer_has_it():
    assert loop_lag.find({"ok": True, "loop": {"lag_p999_us": 300}}, "lag_p999_us") == 300
    assert loop_lag.find({"ok": True}, "lag_p999_us") is None


def test_the_java_tools_steady_state_is_read():
    output = (
        "200 records sent, 100.0 records/sec (0.1 MB/sec), 9.1 ms avg latency, 12.0 ms max latency, "
        "9 ms 50th, 10 ms 95th, 11 ms 99th, 12 ms 99.9th.\n"
        "100 steady state records sent, 230496.1 records/sec (2.1 MB/sec), 4.1 ms avg latency, 8.0 ms max latency, "
        "3 ms 50th, 4 ms 95th, 6 ms 99th, 7 ms 99.9th.\n"
    )
    assert read_summary(output) == {"records_per_s": 230496.1, "p99": 6.0}


def test_line_names_are_unique():
    names = [line.name for line in bench.all_lines()]
    assert len(names) == len(set(names))


def test_lines_are_chosen_by_name_or_pattern():
    names = [line.name for line in bench.chosen(bench.all_lines(), ["latency-500*", "many"])]
    assert sorted(names) == [
        "latency-500",
        "latency-500-fresh",
        "latency-500-v13",
        "latency-500-v13-fresh",
        "many",
    ]


def test_lines_measured_again_stand_in_the_document_of_the_full_run():
    def line_of(name, odradek):
        result, figure = result_of(at_least(4), [100], [odradek])
        return LineResult(Line(name, f"{name} requests", figure), result.rounds)

    first = report.document(
        [line_of("tiny", 300), line_of("big", 200), line_of("eight", 500)],
        bench.FULL,
        "python -m tests.bench",
        {"cores": "2"},
    )
    assert "Not met: tiny; big." in first
    again = report.updated(first, [line_of("big", 800)], "python -m tests.bench --only 'big'")
    assert "Not met: tiny." in again
    assert "Measured again, by `python -m tests.bench --only 'big'`: big." in again
    assert again.count("`big` big requests") == 1
    assert "| 8x " in again
    table = [line for line in again.splitlines() if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert [line.split("`")[1] for line in table[2:]] == ["tiny", "big", "eight"]
    more = report.updated(first, [line_of("huge", 1)], "python -m tests.bench --only 'huge'")
    table = [line for line in more.splitlines() if line.startswith("|")]
    assert [line.split("`")[1] for line in table[2:]] == ["tiny", "big", "eight", "huge"]


def test_what_was_not_met_may_have_commas_in_its_name():
    result, figure = result_of(at_least(4), [100], [300])
    figure = replace(figure, title="requests, depth 1")
    results = [LineResult(Line("tiny", "tiny requests", figure), result.rounds)]
    first = report.document(results, bench.FULL, "python -m tests.bench", {})
    assert "Not met: tiny (requests, depth 1)." in first.splitlines()
    again = report.updated(first, results, "python -m tests.bench --only 'tiny'")
    assert "Not met: tiny (requests, depth 1)." in again.splitlines()
