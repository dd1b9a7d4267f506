from __future__ import annotations

from broker.config.broker_keys import BROKER_KEYS, SUBJECTS
from broker.config.documentation import configuration_page
from broker.config.topic_keys import TOPIC_KEYS
from tests.support.generate_docs import DOCS, PAGES


def test_generated_pages_are_up_to_date() -> None:
    stale = [name for name, page in PAGES.items() if (DOCS / name).read_text("utf-8") != page()]
    assert not stale, "run `make docs`"


def test_every_setting_has_a_row() -> None:
    page = configuration_page()
    for name in [*TOPIC_KEYS, *BROKER_KEYS]:
        assert f"| `{name}` |" in page


def test_settings_without_an_effect_have_a_reason_by_subject() -> None:
    page = (DOCS / "not_implemented.md").read_text("utf-8")
    reasons = page.partition("## Settings without an effect")[2].partition("\n## ")[0]
    idle = [name for name, keys in SUBJECTS.items() if any(not key.has_effect for key in keys)]
    for subject in ["Topic settings", *idle]:
        assert f"\n| {subject} | " in reasons


def test_no_cell_breaks_the_table() -> None:
    for line in configuration_page().splitlines():
        if line.startswith("|"):
            assert line.count("|") == 7, line
