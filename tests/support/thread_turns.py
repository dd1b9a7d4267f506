"""A loop for a test whose machines hear from other threads: what they post runs in the test's."""

import queue
from collections.abc import Callable


class ThreadTurns:
    def __init__(self, is_idle: Callable[[], bool] = lambda: True) -> None:
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        #: Whether nobody waits for an answer.
        self.is_idle = is_idle

    def post(self, call: Callable[[], None]) -> None:
        self._posted.put(call)

    def run(self) -> None:
        """Until every call is answered and nothing that was posted is left."""
        self.wait(lambda: self.is_idle() and self._posted.empty(), "every answer")

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        while not condition():
            try:
                self._posted.get(timeout=seconds)()
            except queue.Empty:
                raise TimeoutError(f"{what}: not within {seconds} s") from None
