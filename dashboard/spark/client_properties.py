"""Properties of librdkafka, as this node reaches its cluster, in the words of Java's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SAME: Final = ("security.protocol", "ssl.endpoint.identification.algorithm")
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_properties(given: Mapping[str, str]) -> dict[str, str]:
    """What Java knows under another name is translated; what only librdkafka knows is left out."""
    found = {name: given[name] for name in _SAME if name in given}
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism in _LOGIN_MODULES:
        user, password = given.get("sasl.username", ""), given.get("sasl.password", "")
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = (
            f"{_LOGIN_MODULES[mechanism]} required "
            f"username={_quoted(user)} password={_quoted(password)};"
        )
    if authority := given.get("ssl.ca.location"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    elif authority := given.get("ssl.ca.pem"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if "ssl.certificate.pem" in given and "ssl.key.pem" in given:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": given["ssl.certificate.pem"],
            "ssl.keystore.key": given["ssl.key.pem"],
        }
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
