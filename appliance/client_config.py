"""Client settings from files: Java ``--command-config`` properties and named profiles.

Java names are translated where librdkafka has another one; what only Java knows is left out.
A profile is a table of ``config.toml`` under the user's configuration directory:

    [profile.staging]
    bootstrap = "kafka.staging:9092"
    properties = { "security.protocol" = "SSL" }
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from appliance.failure import EXIT_USAGE, CommandError

_SAME_NAMES = ("bootstrap.servers", "security.protocol", "client.id", "sasl.mechanism")
_NAME_CHECK = "ssl.endpoint.identification.algorithm"
_STORES = ("ssl.truststore", "ssl.keystore")
_SAME_PREFIXES = ("ssl.key.", "ssl.certificate.", "ssl.ca.", "sasl.username", "sasl.password")
_RENAMED = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_JAAS_FIELD = re.compile(r'(username|password)\s*=\s*"([^"]*)"')


def read_command_config(path: Path) -> dict[str, str]:
    """A .properties file as written for Kafka's own tools."""
    try:
        text = path.read_text()
    except OSError as error:
        raise CommandError(
            f"--command-config {path}: {error.strerror}", exit_code=EXIT_USAGE
        ) from None
    return translate({key: _unescaped(value) for key, value in parse_properties(text).items()})


def _unescaped(value: str) -> str:
    """As Java reads it: keys in PEM have their line ends as ``\\n``."""
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), value)


def parse_properties(text: str) -> dict[str, str]:
    """``key=value`` lines; comments, blank lines and lines continued by a backslash."""
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            found[key.strip()] = value.strip()
    return found


def translate(properties: dict[str, str]) -> dict[str, str]:
    """Java client properties as librdkafka knows them."""
    for store in _STORES:
        _refuse_java_store(store, properties)
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key in _SAME_NAMES or key.startswith(_SAME_PREFIXES):
            found[key] = value
        elif key in _RENAMED:
            found[_RENAMED[key]] = value
        elif key == "sasl.jaas.config":
            found |= {f"sasl.{name}": text for name, text in _JAAS_FIELD.findall(value)}
        elif (
            key == "ssl.keystore.location"
        ):  # of type PEM: the key and its certificates in one file
            found |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif key == _NAME_CHECK:
            found[key] = value.lower() or "none"
    return found


def _refuse_java_store(store: str, properties: dict[str, str]) -> None:
    path = properties.get(f"{store}.location", "")
    kind = properties.get(f"{store}.type", "").upper()
    if path and (kind in ("JKS", "PKCS12") or path.endswith((".jks", ".p12", ".pfx"))):
        raise CommandError(
            f"{store}.location={path}: only Java reads such a file",
            hint=f"Write it as PEM (keytool, openssl pkcs12) and name that, with {store}.type=PEM.",
            exit_code=EXIT_USAGE,
        )


def profiles_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "odradek" / "config.toml"


def read_profile(name: str) -> dict[str, str]:
    """The properties of a profile, its address as ``bootstrap.servers``."""
    import tomllib

    path = profiles_path()
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text())
    except FileNotFoundError:
        document = {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CommandError(f"{path}: {error}", exit_code=EXIT_USAGE) from None
    profiles = document.get("profile", {})
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise CommandError(
            f"no profile {name!r} in {path} (there: {known})",
            hint=f'Add a table [profile.{name}] with bootstrap = "HOST:PORT".',
            exit_code=EXIT_USAGE,
        )
    profile = profiles[name]
    properties = {str(key): str(value) for key, value in profile.get("properties", {}).items()}
    if "bootstrap" in profile:
        properties["bootstrap.servers"] = str(profile["bootstrap"])
    return properties
