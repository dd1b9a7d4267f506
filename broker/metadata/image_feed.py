"""Brokers pull the cluster's image from the controller: what changed, or the whole.

A broker says what it has, as (controller epoch, image version); within one controller epoch versions
rise by one. It takes images only from the highest controller epoch that it has seen, and in order,
so that a controller that was replaced cannot set it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from broker.metadata.changes import Change
from broker.metadata.image import ClusterImage

#: Images back from the newest that can be told as changes.
MAX_STEPS = 256


class ImageVersion(NamedTuple):
    controller_epoch: int
    version: int


NOTHING_KNOWN = ImageVersion(-1, -1)


class ImageUpdate(NamedTuple):
    """Leads from ``base`` to ``version`` by ``steps``, or is the whole ``image``."""

    controller_epoch: int
    version: int
    base: int = -1
    steps: Sequence[tuple[Change, ...]] = ()
    image: ClusterImage | None = None


class ImageFeed:
    """The controller's side, for one term."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._steps: deque[tuple[Change, ...]] = deque(maxlen=MAX_STEPS)

    @property
    def version(self) -> ImageVersion:
        return ImageVersion(self._image.controller_epoch, self._image.version)

    def publish(self, image: ClusterImage) -> None:
        """The next image, made from the one before by ``image.changes``."""
        if image.version != self._image.version + 1:
            self._steps.clear()
        else:
            self._steps.append(image.changes)
        self._image = image

    def update_for(self, known: ImageVersion) -> ImageUpdate | None:
        """None when there is nothing new: the asker may wait."""
        image = self._image
        if known == self.version:
            return None
        missing = image.version - known.version
        if known.controller_epoch == image.controller_epoch and 0 < missing <= len(self._steps):
            steps = list(self._steps)[-missing:]
            return ImageUpdate(image.controller_epoch, image.version, known.version, steps)
        return ImageUpdate(image.controller_epoch, image.version, image=image)


class ImageFollower:
    """A broker's side: the newest image that it knows of."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.known = NOTHING_KNOWN

    def on_update(self, update: ImageUpdate) -> bool:
        """Gives whether the image is a newer one now."""
        version = ImageVersion(update.controller_epoch, update.version)
        if version <= self.known:
            return False
        if update.image is not None:
            self.image = update.image
        elif self.known == (update.controller_epoch, update.base):
            for changes in update.steps:
                self.image = self.image.apply(changes)
        else:
            return False
        self.known = version
        return True
