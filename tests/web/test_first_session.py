"""The list that a newcomer does, from an empty directory."""

from pathlib import Path

from tests.web import first_session


def test_a_newcomers_first_session_works(tmp_path: Path) -> None:
    first_session.run(tmp_path)
