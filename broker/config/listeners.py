"""Addresses to listen on and to advertise, as ``listeners`` and its companions describe them."""

from __future__ import annotations

import re
from typing import NamedTuple

from broker.config.definition import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: Kafka's form: ``NAME://host:port``, an IPv6 host in brackets, an empty host for all addresses.
_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]/:]*)):(-?[0-9]+)")


class Listener(NamedTuple):
    """One address. ``host`` is empty for all interfaces; port 0 lets the system choose."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """``listener.security.protocol.map``: listener name -> security protocol."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in pair.rpartition(":"))
        if not colon or not name:
            raise ConfigError(setting, f"{setting}: '{pair}' is not of the form NAME:PROTOCOL")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            allowed = ", ".join(SECURITY_PROTOCOLS)
            raise ConfigError(setting, f"{setting}: '{protocol}' is not one of {allowed}")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_loopback(setting: str, text: str) -> tuple[str, int] | None:
    """``host:port`` of this machine, for what answers without asking who asks; None when empty."""
    if not text:
        return None
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:]+)\]|([^\[\]/:]+)):([0-9]{1,5})", text.strip())
    if match is None or int(match[3]) > 65535:
        raise ConfigError(setting, f"{setting}: '{text}' is not of the form host:port")
    host = match[1] or match[2]
    if host not in ("localhost", "::1") and not re.fullmatch(r"127(\.[0-9]+){3}", host):
        raise ConfigError(setting, f"{setting}: '{host}' is not an address of loopback")
    return host, int(match[3])


def parse_listeners(
    setting: str, texts: tuple[str, ...], protocols: dict[str, str]
) -> tuple[Listener, ...]:
    """The listeners that ``setting`` names, each with a name and (for ``listeners``) a port of its own."""
    listeners = tuple(_parse_listener(setting, text, protocols) for text in texts)
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(setting, f"{setting}: each listener must have a different name")
    return listeners


def check_distinct_ports(setting: str, listeners: tuple[Listener, ...]) -> None:
    """Refuse two listeners on one port, but for one IPv4 and one IPv6 address that share it."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        families = [_family(listener.host) for listener in sharing]
        if len(sharing) > 1 and sorted(families) != ["ipv4", "ipv6"]:
            raise ConfigError(setting, f"{setting}: several listeners use port {port}")


def _family(host: str) -> str:
    if ":" in host:
        return "ipv6"
    return "ipv4" if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else "name"


def _parse_listener(setting: str, text: str, protocols: dict[str, str]) -> Listener:
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(setting, f"{setting}: '{text}' is not of the form NAME://host:port")
    name, ipv6, host, port = match.groups()
    name = name.upper()
    if name not in protocols:
        raise ConfigError(
            setting,
            f"{setting}: no security protocol for listener {name} in listener.security.protocol.map",
        )
    if not 0 <= int(port) <= 65535:
        raise ConfigError(setting, f"{setting}: port {port} of '{text}' is not between 0 and 65535")
    return Listener(name, ipv6 or host, int(port), protocols[name])
