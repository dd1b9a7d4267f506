"""What a client can make the log say: one line a second, and what was held back is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.log_limit import MAX_CAUSES, LogLimit, caused_by


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())

    def take(self) -> list[str]:
        taken, self.written = self.written, []
        return taken


@pytest.fixture
def limit() -> LogLimit:
    return LogLimit()


@pytest.fixture
def lines(limit: LogLimit) -> Iterator[Lines]:
    handler = Lines()
    handler.addFilter(limit)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)


logger = logging.getLogger("tests.log_limit")


def close(host: str, port: int) -> None:
    logger.info("closing %s:%d", host, port, extra=caused_by(host))


def test_the_first_line_is_written_at_once_and_the_rest_is_told_in_one(
    limit: LogLimit, lines: Lines
) -> None:
    for port in range(5):
        close("10.0.0.1", port)
    assert lines.take() == ["closing 10.0.0.1:0"]
    limit.tick()
    assert lines.take() == ["4 more by 10.0.0.1, the last: closing 10.0.0.1:4"]
    limit.tick()
    assert lines.take() == []


def test_who_goes_on_is_told_once_a_tick_and_no_more(limit: LogLimit, lines: Lines) -> None:
    for _ in range(10):
        for port in range(100):
            close("10.0.0.1", port)
        limit.tick()
    assert len(lines.take()) == 11
    limit.tick()
    assert not limit.is_counting


def test_after_a_quiet_second_a_line_is_whole_again(limit: LogLimit, lines: Lines) -> None:
    close("10.0.0.1", 1)
    limit.tick()
    close("10.0.0.1", 2)
    assert lines.take() == ["closing 10.0.0.1:1", "closing 10.0.0.1:2"]


def test_causes_levels_and_loggers_do_not_hide_each_other(limit: LogLimit, lines: Lines) -> None:
    other = logger.getChild("other")
    close("10.0.0.1", 1)
    close("10.0.0.2", 2)
    logger.error("a fault", extra=caused_by("10.0.0.1"))
    other.info("something else", extra=caused_by("10.0.0.1"))
    assert lines.take() == ["closing 10.0.0.1:1", "closing 10.0.0.2:2", "a fault", "something else"]


def test_lines_that_no_client_causes_are_all_written(limit: LogLimit, lines: Lines) -> None:
    for number in range(5):
        logger.info("step %d", number)
    assert lines.take() == [f"step {number}" for number in range(5)]


def test_more_causes_than_are_told_apart_are_counted_together(
    limit: LogLimit, lines: Lines
) -> None:
    count = MAX_CAUSES + 1000
    for number in range(count):
        close(f"10.0.{number >> 8}.{number & 255}", number)
    assert len(lines.take()) == MAX_CAUSES + 1  # one of the others is written, as their first
    limit.tick()
    (line,) = lines.take()
    assert line.startswith("999 more by others, the last: closing 10.0.")
