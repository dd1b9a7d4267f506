"""The way to one cluster: its address and properties, the library's admin client, plain sockets.

What the parts of the gateway share. Nothing is connected before the first question; ``check``
tells within the timeout whether anybody answers at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from dashboard import probe, wire
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.gateway.translate import (
    TURNED_AWAY_CODES,
    failure_of_error,
    failure_of_exception,
    library_failures,
    reason_of,
)

K = TypeVar("K")

GRACE_S = 5.0
"""The library's own timeout gives the better message: ours comes so much later."""


class ClusterLink:
    """One cluster, by its bootstrap servers and client properties of librdkafka."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 10.0,
        is_verbose: bool = False,
    ) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._properties = dict(properties or {})
        self._is_verbose = is_verbose
        self._admin_client: AdminClient | None = None
        self._turned_away: KafkaFailure | None = None
        self._reached: tuple[str, int] | None = None
        self._ranges = probe.ApiRanges({})

    @property
    def is_plain(self) -> bool:
        """Whether our own plain-socket requests can be used beside the library's."""
        protocol = self._properties.get("security.protocol", "plaintext")
        return protocol.lower() == "plaintext"

    def client_properties(self, **more: Any) -> dict[str, Any]:
        """Properties for a client of the library; the caller's ``-X`` win over ours."""
        quiet: dict[str, Any] = {} if self._is_verbose else {"log_level": 0}
        return {
            "client.id": "odradek",
            **quiet,
            **more,
            **self._properties,
            "bootstrap.servers": self.bootstrap,
        }

    def also_by(self, addresses: Iterable[str]) -> None:
        """More bootstrap servers, asked after those that there are."""
        known = [server.strip() for server in self.bootstrap.split(",")]
        self.bootstrap = ",".join(dict.fromkeys([*known, *addresses]))

    def check(self) -> None:
        """Raise a transport failure unless one of the bootstrap servers answers."""
        problems = []
        for server in self.bootstrap.split(","):
            try:
                address = probe.split_address(server)
                if self.is_plain:
                    self._ranges = probe.ask_api_versions(address, self.timeout_s)
                else:
                    probe.connect_only(address, self.timeout_s)
            except (OSError, ValueError) as error:
                problems.append(f"{server.strip()}: {reason_of(error)}")
            else:
                self._reached = address
                return
        raise KafkaFailure("NOT_CONNECTED", "; ".join(problems), is_transport=True)

    # Plain sockets

    def serves(self, request: tuple[int, int]) -> bool:
        """Whether the broker takes this (API key, version) from a plain socket of ours."""
        if not self.is_plain:
            return False
        if self._reached is None:
            self.check()
        return self._ranges.serves(*request)

    def connect(self, address: tuple[str, int] | None = None) -> wire.WireConnection:
        """A connection of our own, by default to the bootstrap server that answered."""
        assert self._reached is not None, "only after serves()"
        return wire.WireConnection(address or self._reached, self.timeout_s)

    # The library

    def admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(self.client_properties(error_cb=self._on_error))
            # A first request that needs a partition's leader may be put off by the library for one
            # to three seconds while it changes connections; this one never is. Its answer, or
            # that an old cluster cannot give one, does not matter.
            with contextlib.suppress(KafkaException, TimeoutError):
                answer = self._admin_client.describe_cluster(request_timeout=self.timeout_s)
                answer.result(timeout=self.timeout_s)
        return self._admin_client

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in TURNED_AWAY_CODES:
            self._turned_away = failure_of_error(error)

    def reason_of(self, failure: KafkaFailure) -> KafkaFailure:
        """A broker that does not let us in is, to the request, one that does not answer: why is told aside."""
        if failure.is_transport and self._admin_client is not None:
            self._admin_client.poll(0)
            return self._turned_away or failure
        return failure

    def brokers(self) -> tuple[BrokerView, ...]:
        """All brokers that are there now."""
        with library_failures():
            future = self.admin().describe_cluster(request_timeout=self.timeout_s)
            (outcome,) = self.outcomes({0: future}).values()
        if isinstance(outcome, KafkaFailure):
            raise outcome
        nodes = sorted(outcome.nodes, key=lambda node: node.id)
        return tuple(BrokerView(node.id, node.host, node.port, node.rack) for node in nodes)

    def timeouts(self) -> dict[str, float]:
        """For requests whose work the broker itself may time out."""
        return {"request_timeout": self.timeout_s, "operation_timeout": self.timeout_s}

    def done(self, futures: Mapping[K, Future[Any]]) -> dict[K, KafkaFailure | None]:
        return {
            key: outcome if isinstance(outcome, KafkaFailure) else None
            for key, outcome in self.outcomes(futures).items()
        }

    def outcomes(self, futures: Mapping[K, Future[Any]]) -> dict[K, Any]:
        """Results by key; a failure that no broker gave fails the whole call."""
        outcomes: dict[K, Any] = {}
        for key, future in futures.items():
            try:
                outcomes[key] = future.result(timeout=self.timeout_s + GRACE_S)
            except KafkaException as error:
                failure = failure_of_exception(error)
                if failure.is_transport:
                    raise failure from None
                outcomes[key] = failure
            except TimeoutError as error:
                raise KafkaFailure("TIMED_OUT", reason_of(error), is_transport=True) from None
        return outcomes
