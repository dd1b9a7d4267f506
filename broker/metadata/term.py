"""One term of office: a controller over the cluster's store, the feed of its images, and the brokers
that count.

Brokers are settled one after the other, with the newest that was seen: two at a time could admit a
broker that the later one knows to be gone.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metadata import znodes
from broker.metadata.controller import Controller
from broker.metadata.fencing import Fencing, Verdict
from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.image_feed import ImageFeed
from broker.metadata.store import Node
from broker.model.ids import BrokerId

#: Makes a controller: told of images, and of why its term ended.
NewController = Callable[
    [Callable[[ClusterImage, ClusterImage], None], Callable[[str], None]], Controller
]


class ControllerTerm:
    """``feed`` is None until the term has begun; ``on_image`` is called with every image in it."""

    def __init__(
        self,
        cluster_id: str,
        broker_id: BrokerId,
        new_controller: NewController,
        on_image: Callable[[], None],
        on_stopped: Callable[[str], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._on_image = on_image
        self.controller = new_controller(self._published, on_stopped)
        self.feed: ImageFeed | None = None
        self.fencing = Fencing(broker_id)
        self._is_settling = False
        self._is_again = False
        self._is_stopped = False
        #: Brokers that stop and wait until others lead; bounded by their number.
        self._leaving: list[Callable[[], None]] = []
        self._settled: Callable[[bool], None] = lambda is_done: None

    def take_office(self, replaces: Node | None, done: Callable[[str | None], None]) -> None:
        def started(why_not: str | None) -> None:
            if why_not is None:
                self.feed = ImageFeed(self.controller.image)
                self._on_image()
            done(why_not)

        self.controller.start(
            self._cluster_id,
            started,
            skeleton=znodes.CLUSTER_SKELETON,
            replaces=replaces,
            may_found=False,
        )

    def brokers_seen(
        self, brokers: dict[BrokerId, BrokerImage], done: Callable[[bool], None]
    ) -> None:
        """``done`` with the outcome, unless a newer call comes before it."""
        self.fencing.on_seen(brokers)
        self._settled = done
        self._settle()

    def broker_refused(
        self, observer: BrokerId, suspect: BrokerId, broker_epoch: int, now_ms: int
    ) -> bool:
        """A broker's address refused ``observer``; gives whether the controller is to try it."""
        verdict = self.fencing.on_refusal(observer, suspect, broker_epoch, now_ms)
        if verdict is Verdict.FENCE:
            self._settle()
        return verdict is Verdict.PROBE

    def broker_answered(self, broker_id: BrokerId) -> None:
        """A probe was answered."""
        if self.fencing.on_answer(broker_id):
            self._settle()

    def broker_leaves(
        self, broker_id: BrokerId, broker_epoch: int, done: Callable[[], None]
    ) -> None:
        """Controlled shutdown: ``done`` when the image says that others lead."""
        if self.fencing.on_leaving(broker_id, broker_epoch):
            self._leaving.append(done)
            self._settle()
        else:
            done()

    def _settle(self) -> None:
        if self._is_settling:
            self._is_again = True
            return
        self._is_settling, self._is_again = True, False
        self.controller.brokers_seen(self.fencing.counted(), self._ended)

    def _ended(self, is_done: bool) -> None:
        self._is_settling = False
        if self._is_stopped:
            return
        if self._is_again:
            self._settle()
            return
        leaving, self._leaving = self._leaving, []
        for done in leaving:
            done()
        self._settled(is_done)

    def stop(self, why: str) -> None:
        self._is_stopped = True
        self.controller.stop(why)

    def _published(self, before: ClusterImage, after: ClusterImage) -> None:
        if self.feed is not None:
            self.feed.publish(after)
            self._on_image()
        if before.features_epoch != after.features_epoch:
            self._settle()  # who did not support what was finalised may do now
