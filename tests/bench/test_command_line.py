"""What the document says made its figures."""

from tests.bench.__main__ import command_line, parse


def test_a_full_run_is_named_by_the_bare_command() -> None:
    assert command_line(parse([])) == "python -m tests.bench"


def test_every_option_that_changes_figures_is_named() -> None:
    options = parse(["--only", "tiny", "--quick", "--rounds", "1", "--warmup", "5"])

    assert command_line(options) == (
        "python -m tests.bench --only 'tiny' --quick --rounds 1 --warmup 5"
    )
