"""The appliance's part of docs/configuration.md, from the model that reads the settings."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import SecretStr

from appliance.commands.config_show import shown
from appliance.config import ApplianceConfig

HEAD = """## The appliance

What `odradek serve` and its processes read. Each setting may stand in a TOML file (`odradek serve
--config odradek.toml`), in the environment as `ODRADEK_` and its name in capitals, and some as a
flag; later ones of these win. A secret may stand in a file of its own, whose path is given by
`ODRADEK_..._FILE`. A setting that nobody knows stops the start. `odradek config show` tells every
effective value and where it came from.

```toml
# odradek.toml
web = "0.0.0.0:8080"
public_url = "https://kafka.example.org"
trusted_proxies = 1

[broker] # by Kafka's names, see below
"num.partitions" = "3"
"log.retention.hours" = "72"
```

Lists are written with commas in the environment, tables as lines of `key=value`. `DATABASE_URL`
without the prefix counts too.

| Setting | Default | Environment | Meaning |
|---|---|---|---|
"""


def appliance_section() -> str:
    rows = [_row(name, field) for name, field in ApplianceConfig.model_fields.items()]
    return HEAD + "\n".join(rows) + "\n"


def _row(name: str, field: Any) -> str:
    default = shown(field.get_default(call_default_factory=True))
    variable = f"ODRADEK_{name.upper()}"
    if field.annotation is SecretStr:
        variable = f"{variable}`, `{variable}_FILE"
    text = str(field.description)
    choices = [each for each in get_args(field.annotation) if isinstance(each, str)]
    if choices:
        text += f" One of {', '.join(choices)}."
    return f"| `{name}` | {f'`{default}`' if default else ''} | `{variable}` | {text} |"
