"""Write the generated pages under docs/. Run by `make docs`; a test compares what is there.

    python -m tests.support.generate_docs

A page is a function that returns its text; add it to PAGES.
"""

from collections.abc import Callable
from pathlib import Path

from appliance.config_documentation import appliance_section
from broker.config.documentation import configuration_page
from tests.support import generate_docs_alerts, generate_docs_grafana, generate_docs_protocol

DOCS = Path(__file__).resolve().parents[2] / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": lambda: f"{configuration_page()}\n{appliance_section()}",
    "grafana-odradek.json": generate_docs_grafana.render,
    "odradek-alerts.yml": generate_docs_alerts.render,
    "protocol.md": generate_docs_protocol.render,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
