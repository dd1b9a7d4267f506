"""From verdicts to published images: the controller's requests, slice by slice, in order.

A request is a generator of steps. Each step is judged on the *proposed* image, which includes the
writes under way, submitted at once and published when durable, in order; a request's ``done`` is
called when all of its steps are. Requests take turns, a step each.

When a write fails, what was proposed on top of it never came to be. So the pipeline drains: nothing
new is judged until every write under way has its outcome; then the image is read anew from the
store, unless it is certain that nothing happened since the last published one; then work goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from broker.metadata.changes import Change
from broker.metadata.differences import differences
from broker.metadata.image import ClusterImage
from broker.metadata.requests import Result, failed
from broker.metadata.store import Done, Outcome, Post, RefusalReason, Refused, Unknown
from broker.model.error_code import ErrorCode

#: Requests under way; one more is told to come back later.
MAX_REQUESTS = 1000

#: Steps that wait for the store; judging pauses beyond.
MAX_STEPS_UNDER_WAY = 256

R = TypeVar("R", bound=Result)


@dataclass(slots=True, eq=False)
class Step(Generic[R]):
    """One slice of a request: what to change, and the results if the write succeeds."""

    changes: list[Change] = field(default_factory=list)
    results: list[R] = field(default_factory=list)
    #: How much of a slice it is, as its maker counts.
    size: int = 0
    is_last: bool = False
    #: The store has it already: the change tells how a write went.
    is_stored: bool = False


#: At least one; the last one says so.
Steps: TypeAlias = Generator[Step[R], None, None]


class Backend(Protocol):
    """What the pipeline needs of the controller."""

    def submit(
        self, before: ClusterImage, changes: Sequence[Change], done: Callable[[Outcome], None]
    ) -> None:
        """Write ``changes`` to the store."""
        ...

    def reload(self, done: Callable[[ClusterImage | str], None]) -> None:
        """Read the image anew; or say why we are no longer the controller."""
        ...

    def proposed(self, changes: Sequence[Change]) -> None:
        """The proposed image was extended: for indexes kept beside it."""
        ...

    def published(self, before: ClusterImage, after: ClusterImage) -> None: ...

    def reset(self, image: ClusterImage) -> None:
        """The proposed image is this one again: make such indexes anew."""
        ...


@dataclass(slots=True, eq=False)
class _Request(Generic[R]):
    """A request until all of its steps have an outcome."""

    steps: Steps[R]
    refused: Callable[[ErrorCode, str], list[R]]
    done: Callable[[list[R]], None]
    results: list[R] = field(default_factory=list)
    steps_under_way: int = 0
    is_judged: bool = False


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A step that was proposed, in order. ``image`` is published when it is durable."""

    request: _Request[Any]
    step: Step[Any]
    image: ClusterImage
    outcome: Outcome | None = None


class Pipeline:
    """See the module's docstring. Stopped until ``start``; everything on the loop's thread."""

    def __init__(self, backend: Backend, post: Post) -> None:
        self._backend = backend
        self._post = post
        self._image = ClusterImage()
        self._proposed = self._image
        self._requests: deque[_Request[Any]] = deque()
        self._under_way: deque[_UnderWay] = deque()
        self._finished: list[_Request[Any]] = []
        self._is_pumping = False
        # Not started: requests wait. Stopped (with a reason): they are refused.
        self._is_stopped = True
        self._stopped_because = ""
        self._is_draining = False
        self._is_in_doubt = False

    @property
    def image(self) -> ClusterImage:
        """The newest durable image."""
        return self._image

    @property
    def proposed(self) -> ClusterImage:
        """With the writes under way: what verdicts are given on."""
        return self._proposed

    def start(self, image: ClusterImage) -> None:
        """Take requests from now on. This first image is not published: it has no before."""
        self._is_stopped, self._stopped_because = False, ""
        self._image = image
        self._restart_from(image)
        self._pump_soon()

    def ask(
        self,
        steps: Steps[R],
        refused: Callable[[ErrorCode, str], list[R]],
        done: Callable[[list[R]], None],
    ) -> None:
        """``refused``: the results when the request is not even looked at."""
        results: list[R] | None = None
        if self._stopped_because:
            results = refused(ErrorCode.NOT_CONTROLLER, self._stopped_because)
        elif len(self._requests) >= MAX_REQUESTS:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            results = refused(code, "Too many metadata requests are under way.")
        if results is not None:
            told = results
            self._post(lambda: done(told))
            return
        self._requests.append(_Request(steps, refused, done))
        self._pump_soon()

    # Judging

    def _pump_soon(self) -> None:
        is_full = len(self._under_way) >= MAX_STEPS_UNDER_WAY
        if not (self._is_pumping or self._is_draining or self._is_stopped or is_full):
            self._is_pumping = True
            self._post(self._pump)

    def _pump(self) -> None:
        """One step of the first request; it goes to the end of the line if there is more."""
        self._is_pumping = False
        if self._is_draining or self._is_stopped or not self._requests:
            return
        request = self._requests.popleft()
        step = next(request.steps)
        if step.is_last:
            request.is_judged = True
        else:
            self._requests.append(request)
        self._propose(request, step)
        self._pump_soon()

    def _propose(self, request: _Request[Any], step: Step[Any]) -> None:
        before = self._proposed
        if step.changes:
            self._proposed = before.apply(step.changes)
            self._backend.proposed(step.changes)
        under_way = _UnderWay(request, step, self._proposed)
        request.steps_under_way += 1
        self._under_way.append(under_way)
        if step.changes and not step.is_stored:
            self._backend.submit(before, step.changes, lambda o: self._answered(under_way, o))
        else:
            # Nothing to write, but it was judged on what is under way: it waits for that.
            self._answered(under_way, Done(()))

    # Outcomes

    def _answered(self, under_way: _UnderWay, outcome: Outcome) -> None:
        under_way.outcome = outcome
        while self._under_way and self._under_way[0].outcome is not None:
            self._settle(self._under_way.popleft())
        if not self._is_draining:
            self._pump_soon()
        elif not self._under_way:
            self._drained()

    def _settle(self, under_way: _UnderWay) -> None:
        request, step = under_way.request, under_way.step
        outcome = under_way.outcome
        results = step.results
        assert outcome is not None
        if not isinstance(outcome, Done):
            self._is_draining = True
            self._is_in_doubt |= _leaves_doubt(outcome)
            results = [_failure(result, outcome) for result in results]
        elif not self._is_draining:
            self._publish(under_way.image)
        elif step.changes:
            # Written, but its image was proposed on top of a write that failed.
            self._is_in_doubt = True
        request.results += results
        request.steps_under_way -= 1
        self._maybe_finish(request)

    def _publish(self, image: ClusterImage) -> None:
        before = self._image
        if image is not before:
            self._image = image
            self._backend.published(before, image)

    def _maybe_finish(self, request: _Request[Any]) -> None:
        if not request.is_judged or request.steps_under_way:
            return
        if self._is_draining:
            # Whoever is told of a success must see it in the image.
            self._finished.append(request)
        else:
            request.done(request.results)

    def _drained(self) -> None:
        if self._is_in_doubt:
            self._is_in_doubt = False
            self._backend.reload(self._reloaded)
        else:
            self._go_on(self._image)

    def _reloaded(self, image: ClusterImage | str) -> None:
        if isinstance(image, str):
            self.stop(image)
            return
        changes = differences(self._image, image)
        self._go_on(self._image.apply(changes) if changes else self._image)

    def _go_on(self, image: ClusterImage) -> None:
        self._restart_from(image)
        self._publish(image)
        self._is_draining = False
        finished, self._finished = self._finished, []
        for request in finished:
            request.done(request.results)
        self._pump_soon()

    def _restart_from(self, image: ClusterImage) -> None:
        self._proposed = image
        self._backend.reset(image)

    def stop(self, why: str) -> None:
        """No longer the controller: what was not judged to its end is refused, as is all that
        comes until ``start``."""
        self._is_stopped, self._stopped_because = True, why
        self._is_draining = self._is_in_doubt = False
        requests = [*self._finished, *self._requests]
        self._finished = []
        self._requests.clear()
        for request in requests:
            if not request.is_judged:
                request.steps.close()
                request.results = request.refused(ErrorCode.NOT_CONTROLLER, why)
            request.done(request.results)


#: Refusals that leave the store as the last published image has it; any other means that the store
#: is not as we believed.
_NOTHING_CHANGED = (
    RefusalReason.DISK_FULL,
    RefusalReason.UNAVAILABLE,
    RefusalReason.TOO_LARGE,
    RefusalReason.NOT_ALLOWED,
)


def _leaves_doubt(outcome: Refused | Unknown) -> bool:
    return isinstance(outcome, Unknown) or outcome.reason not in _NOTHING_CHANGED


def _failure(result: R, outcome: Refused | Unknown) -> R:
    return failed(result, *failure_of(outcome)) if result.is_success else result


def failure_of(outcome: Refused | Unknown) -> tuple[ErrorCode, str]:
    """What the client of a write that failed is told."""
    if isinstance(outcome, Unknown):
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            f"It is not known whether the change was stored: {outcome.why}",
        )
    if outcome.reason is RefusalReason.TOO_LARGE:
        return ErrorCode.POLICY_VIOLATION, "The change is too large to be stored."
    if outcome.reason in _NOTHING_CHANGED:
        return (
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"The change could not be stored: {outcome.reason.value}.",
        )
    return ErrorCode.NOT_CONTROLLER, "The metadata store was changed by someone else."
