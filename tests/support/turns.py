"""A loop for sans-IO machines: what is posted or run blocking happens turn by turn, in a test.

Blocking work runs at once when its turn comes; with ``dice`` the order of what waits is shuffled
as far as a real loop could (threads finish in any order, posted calls never overtake each other).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable


class Turns:
    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice
        self._posted: deque[Callable[[], None]] = deque()
        self._blocking: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def post(self, call: Callable[[], None]) -> None:
        self._posted.append(call)

    def run_blocking(
        self, work: Callable[[], None], then: Callable[[BaseException | None], None]
    ) -> None:
        self._blocking.append((work, then))

    def step(self) -> bool:
        """One thing that waits; False if nothing does."""
        if self._posted and (not self._blocking or self._dice is None or self._dice.random() < 0.5):
            self._posted.popleft()()
            return True
        if not self._blocking:
            return False
        index = self._dice.randrange(len(self._blocking)) if self._dice is not None else 0
        work, then = self._blocking.pop(index)
        error: BaseException | None = None
        try:
            work()
        except OSError as raised:
            error = raised
        self._posted.append(lambda: then(error))
        return True

    def run(self) -> None:
        while self.step():
            pass
