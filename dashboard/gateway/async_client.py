"""What the users of the asynchronous client library (aiokafka) share: its options, its exceptions."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import aiokafka.client
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from dashboard.cluster import KafkaFailure

# The library's own request lets a broker create the topic that it asks about: a tail of a topic
# that somebody deletes would bring it back. This process uses the library only to read.
aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)


@contextlib.contextmanager
def client_failures() -> Iterator[None]:
    """The library's exceptions as the gateway's."""
    try:
        yield
    except (KafkaError, OSError) as error:
        name = type(error).__name__
        raise KafkaFailure(name, str(error) or name, is_transport=True) from None


def connection_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The connection properties of librdkafka in this library's words; tuning is left out."""
    protocol = properties.get("security.protocol", "plaintext").upper()
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "PLAIN")
        options["sasl_mechanism"] = mechanism.upper()
        options["sasl_plain_username"] = properties.get("sasl.username")
        options["sasl_plain_password"] = properties.get("sasl.password")
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(properties)
    return options


def _ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
    )
    if certificate := properties.get("ssl.certificate.location"):
        context.load_cert_chain(
            certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password")
        )
    elif "ssl.certificate.pem" in properties and "ssl.key.pem" in properties:
        _load_texts(context, properties)
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_texts(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """The standard library reads files alone; this one nobody else can, and it is gone at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{properties['ssl.key.pem']}\n{properties['ssl.certificate.pem']}\n")
        file.flush()
        context.load_cert_chain(file.name, password=properties.get("ssl.key.password"))
