"""What Apache Kafka said of its settings (see tests/golden/capture_configs.py)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from broker.config.broker_config import BrokerConfig, resolve_broker_config

_DIRECTORY = Path(__file__).parents[2] / "golden"


@functools.cache
def load(name: str) -> Any:
    return json.loads((_DIRECTORY / f"configs_{name}.json").read_text())


def described_broker(stage: int) -> BrokerConfig:
    """Our broker with the settings that Kafka had when it was asked: before any dynamic change
    (stage 0), or after (1). Kafka's controller may have set min.insync.replicas by itself."""
    described = load("described")
    static = {k: v for k, v in described["static"].items() if not k.startswith("some.")}
    if stage == 0:
        return resolve_broker_config(static, _own_settings(0), {})
    return resolve_broker_config(
        static, _own_settings(1) | described["dynamic_default"], described["dynamic_broker"]
    )


def _own_settings(stage: int) -> dict[str, str]:
    cluster = load("described")["stages"][stage]["cluster"]
    entry = cluster.get("min.insync.replicas")
    return {} if entry is None else {"min.insync.replicas": entry["value"]}


def verdicts(kind: str, name: str) -> dict[str, int]:
    """Error code for each value that was tried (0: accepted)."""
    by_code = load("verdicts")[kind][name]
    rest = next(int(code) for code, values in by_code.items() if values == ["..."])
    codes = dict.fromkeys(load("verdicts")["values"], rest)
    for code, values in by_code.items():
        if values != ["..."]:
            codes.update(dict.fromkeys(values, int(code)))
    return codes
