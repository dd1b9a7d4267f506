import fcntl
import os

from appliance.supervisor.log_stream import LogStream


def test_lines_carry_the_name_of_their_program() -> None:
    reader, writer = os.pipe()
    log = LogStream(writer)
    log.write_line("broker", "hello")
    assert os.read(reader, 100) == b"broker | hello\n"
    os.close(reader)
    os.close(writer)


def test_a_reader_that_stands_still_costs_lines_and_no_time() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    log = LogStream(writer)
    for number in range(500):
        log.write_line("broker", f"line {number:03d}")
    first = os.read(reader, 8192).decode().splitlines()
    assert first[0] == "broker | line 000"
    kept = len(first)
    log.write_line("broker", "later")
    assert os.read(reader, 8192).decode().splitlines() == [
        f"serve | {500 - kept} log lines were dropped: nobody read them",
        "broker | later",
    ]
    os.close(reader)
    os.close(writer)


def test_a_line_that_was_cut_does_not_run_into_the_next() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    log = LogStream(writer)
    log.write_line("broker", "x" * 10_000)
    assert len(os.read(reader, 20_000)) == 4096
    log.write_line("broker", "next")
    assert os.read(reader, 20_000).decode().splitlines() == [
        "",
        "serve | 1 log lines were dropped: nobody read them",
        "broker | next",
    ]
    os.close(reader)
    os.close(writer)


def test_a_stream_that_is_gone_is_done_without() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = LogStream(writer)
    log.write_line("broker", "into the void")
    os.close(writer)
    log.write_line("broker", "and again")
