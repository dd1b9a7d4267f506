"""A controller over a local store, driven turn by turn, for tests of metadata."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.metadata.controller import Controller
from broker.metadata.files import StoreDirectory
from broker.metadata.image import ClusterImage, Endpoint
from broker.metadata.local_store import LocalStore
from broker.model.ids import BrokerId
from tests.support.turns import Turns

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


class FixedClock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Cluster:
    """One broker's metadata, from ``start`` to ``stop`` (or to a crash: just drop it)."""

    def __init__(
        self,
        directory: StoreDirectory,
        *,
        settings: Mapping[str, str] | None = None,
        seed: int = 1,
        broker_ids: tuple[int, ...] = (1,),
        new_topic_id: Callable[[], uuid.UUID] | None = None,
        wrap: Callable[[LocalStore], Any] = lambda store: store,
        **store_options: Any,
    ) -> None:
        self.dice = random.Random(seed)
        self.turns = Turns(self.dice)
        self.failures: list[str] = []
        self.images: list[ClusterImage] = []
        self.config: BrokerConfig = resolve_broker_config(settings or {}, {}, {})
        self.store = LocalStore(
            directory,
            self.turns.run_blocking,
            self.turns.post,
            self.failures.append,
            **store_options,
        )
        self.controller_store = wrap(self.store)
        self.controller = Controller(
            store=self.controller_store,
            broker_id=BrokerId(1),
            broker_config=lambda: self.config,
            clock=FixedClock(),
            new_topic_id=new_topic_id or (lambda: uuid.UUID(int=self.dice.getrandbits(128))),
            dice=self.dice,
            post=self.turns.post,
            on_image=self._on_image,
        )
        self._broker_ids = broker_ids

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        assert not self.images or self.images[-1] is old
        assert new.version > old.version
        self.images.append(new)

    def start(self) -> Cluster:
        self.store.open()
        reason = self.ask(self.controller.start, CLUSTER_ID)
        assert reason is None, reason
        for broker_id in self._broker_ids:
            self.ask(self.controller.register_broker, BrokerId(broker_id), [ENDPOINT], None)
        return self

    def ask(self, method: Callable[..., None], *arguments: Any) -> Any:
        """Call, and let the turns run until nothing happens any more."""
        answers: list[Any] = []
        method(*arguments, answers.append)
        self.turns.run()
        assert len(answers) == 1, f"{len(answers)} answers"
        return answers[0]

    def stop(self) -> None:
        self.turns.run()
        assert self.store.is_idle
        self.store.close()
