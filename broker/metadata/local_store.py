"""The metadata store in the data directory: a tree in memory, a journal and snapshots on disk.

Files in ``<data>/metadata/``: ``snapshot-N`` is the tree before submission N, ``journal-N`` holds
the submissions from N on. Start: newest snapshot, then every journal from it on, in order.

Promises. A submission is answered ``Done`` when its frame is durable. ``kill -9`` or power loss
between any two writes leaves exactly the answered submissions, plus possibly some unanswered ones,
whole: a torn last frame is cut. Damage anywhere else stops the start with ``CorruptStoreError``
and is never cut. Ephemeral nodes end with the process: the next one has a new session id and
drops them when it loads. A full disk refuses writes and leaves the store usable; a failed sync is
final (the kernel has dropped the pages): later writes are refused and ``on_failure`` is called.

Group commit: submissions are evaluated at once against the tree in memory and wait while a frame
is being written; then one frame takes all that wait. When a frame does not reach the disk, what
was evaluated is taken back, newest first. A submission of many operations (a topic with thousands
of partitions) is evaluated in several turns of the loop; what comes meanwhile waits behind it, so
that nobody sees a part of it.

``open`` blocks (before the loop starts); all else is called on the loop's thread, and only
``run_blocking`` touches files.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from broker.metadata.files import StoreDirectory, StoreFile
from broker.metadata.journal import (
    CorruptStoreError,
    Scan,
    encode_effects,
    encode_frame,
    read_frames,
)
from broker.metadata.snapshot import SnapshotWriter, read_snapshot
from broker.metadata.store import (
    Done,
    Failed,
    Node,
    Operation,
    Outcome,
    Post,
    RefusalReason,
    Refused,
    RunBlocking,
    SessionState,
    Unknown,
    Watcher,
)
from broker.metadata.tree import Application, Effect, Tree, parent_of

#: A journal longer than this (and than the last snapshot) is sealed and a snapshot taken.
JOURNAL_BOUND_BYTES = 4 * 1024 * 1024

#: Zeros kept ahead of the journal's end, so that small commits go through on a full disk: at least
#: so many, and enough to raise the leader epoch of every partition (about 150 bytes for two nodes
#: and more), which a start after a crash on a full disk has to do.
RESERVE_BYTES = 256 * 1024
RESERVE_A_NODE_BYTES = 80

#: One frame takes at most so many bytes of waiting submissions (and always at least one).
MAX_FRAME_BYTES = 1024 * 1024

#: Submissions and reads that wait; beyond, submissions are refused.
MAX_WAITING = 20_000

#: Operations of one submission, and how many of them one turn of the loop evaluates.
MAX_OPERATIONS = 100_000
OPERATIONS_A_TURN = 250

#: Callbacks of one turn of the loop.
DELIVERIES_A_TURN = 4

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Submission:
    """A submission, in the order of the calls, until its callback was called."""

    done: Callable[[Outcome], None]
    outcome: Outcome
    effects: list[Effect]
    payload: bytes = b""

    def deliver(self) -> None:
        self.done(self.outcome)

    def take_back(self, tree: Tree) -> None:
        tree.take_back(self.effects)
        self.effects, self.payload = [], b""

    def refuse(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass(slots=True, eq=False)
class _Read:
    """A read: it looks when it is asked for, and again if something before it is taken back."""

    done: Callable[[Any], None]
    look: Callable[[], Any]
    seen: Any
    effects: Sequence[Effect] = ()
    payload: bytes = b""

    def deliver(self) -> None:
        self.done(self.seen)

    def take_back(self, tree: Tree) -> None:
        """It changed nothing."""

    def refuse(self, outcome: Outcome) -> None:
        """All before it is taken back by now."""
        self.seen = self.look()


_Waiting: TypeAlias = _Submission | _Read


@dataclass(slots=True, eq=False)
class _Evaluation:
    """A submission that is not evaluated to its end. ``application`` None: not begun."""

    operations: Iterable[Operation]
    done: Callable[[Outcome], None]
    application: Application | None = None
    payload: bytearray = field(default_factory=bytearray)


@dataclass(slots=True, eq=False)
class _LaterRead:
    """A read behind an evaluation."""

    done: Callable[[Any], None]
    look: Callable[[], Any]


@dataclass(slots=True, eq=False)
class _FrameWork:
    """Blocking part of a commit. ``is_written`` tells a full disk from a failed sync."""

    journal: StoreFile
    position: int
    frame: bytes
    reserve: Callable[[int], None]
    is_written: bool = False

    @property
    def end(self) -> int:
        return self.position + len(self.frame)

    def run(self) -> None:
        self.journal.write(self.position, self.frame)
        self.is_written = True
        self.journal.datasync()
        self.reserve(self.end)


class LocalStore:
    """See the module's docstring; implements ``MetadataStore``."""

    max_operations = MAX_OPERATIONS

    def __init__(
        self,
        directory: StoreDirectory,
        run_blocking: RunBlocking,
        post: Post,
        on_failure: Callable[[str], None] = lambda why: None,
        journal_bound_bytes: int = JOURNAL_BOUND_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self._directory = directory
        self._run_blocking = run_blocking
        self._post = post
        self._on_failure = on_failure
        self._journal_bound_bytes = journal_bound_bytes
        self._reserve_bytes = reserve_bytes
        self._tree = Tree()
        self._session_id = 1
        self._failure: str | None = None
        # Submissions are numbered when evaluated; the journal's next frame starts at the oldest
        # one that is not durable.
        self._next_submission = 1
        self._journal_next_submission = 1
        self._journal: StoreFile | None = None
        self._journal_end = 0
        self._journal_size = 0
        self._snapshot_at = journal_bound_bytes
        self._is_snapshotting = False
        #: A submission that takes several turns, and what came behind it.
        self._unevaluated: deque[_Evaluation | _LaterRead] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._batch: deque[_Waiting] = deque()
        self._is_busy = False
        self._data_watchers: dict[str, list[Watcher]] = {}
        self._child_watchers: dict[str, list[Watcher]] = {}

    # Life

    @property
    def session_state(self) -> SessionState:
        return SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is being written: ``close`` may be called."""
        return not (self._is_busy or self._is_snapshotting or self._unevaluated)

    @property
    def failure(self) -> str | None:
        """Why writes are refused for good."""
        return self._failure

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """The session lasts as long as the process: there is nothing to tell."""

    def open(self) -> None:
        """Read everything; blocks. Raises ``CorruptStoreError`` or ``OSError``."""
        names = self._directory.names()
        first, session_id = self._load_snapshot(names)
        kept = [number for number in sorted(_numbers(names, "journal-")) if number >= first]
        if not kept and names:
            raise CorruptStoreError(_file_name("journal", first), 0, "missing")
        # A journal of zeros was made for a snapshot that did not come about: the one before it
        # goes on, and may have gone past its number.
        contents = {number: self._directory.read(_file_name("journal", number)) for number in kept}
        written = [number for number in kept if contents[number].strip(b"\x00")]
        current, scan = first, Scan([], 0, False)
        for number in written:
            if scan.is_torn:
                raise CorruptStoreError(
                    _file_name("journal", current), scan.end, "damaged, a newer journal follows"
                )
            scan, session_id = self._replay(number, contents[number], session_id)
            current = number
        self._tree.drop_ephemerals()
        self._session_id = session_id + 1
        self._journal_next_submission = self._next_submission
        self._open_journal(current, len(contents.get(current, b"")), scan)
        self._remove_leftovers(names, first, {current, *written})

    def _load_snapshot(self, names: Sequence[str]) -> tuple[int, int]:
        """Number of the first submission that is not in it, and the session that wrote it."""
        newest = max(_numbers(names, "snapshot-"), default=0)
        if not newest:
            return 1, 0
        name = _file_name("snapshot", newest)
        data = self._directory.read(name)
        session_id = read_snapshot(name, data, self._tree)
        self._snapshot_at = max(self._journal_bound_bytes, len(data))
        self._next_submission = newest
        return newest, session_id

    def _replay(self, number: int, data: bytes, session_id: int) -> tuple[Scan, int]:
        name = _file_name("journal", number)
        if number != self._next_submission:
            raise CorruptStoreError(
                name, 0, f"what comes before it ends at submission {self._next_submission}"
            )
        scan = read_frames(name, data, number)
        for frame in scan.frames:
            session_id = frame.session_id
            for path, node in frame.effects:
                self._tree.put(path, node)
            self._next_submission = frame.first_submission + frame.submission_count
        return scan, session_id

    def _open_journal(self, number: int, size: int, scan: Scan) -> None:
        self._journal = self._directory.open(_file_name("journal", number))
        self._journal_end = scan.end
        self._journal_size = size
        if scan.is_torn:
            # Zeros rather than a cut: the blocks stay ours when the disk is full.
            self._journal.write(scan.end, bytes(size - scan.end))
        self._reserve(scan.end)
        self._journal.datasync()
        self._directory.sync()

    def _remove_leftovers(self, names: Sequence[str], first: int, kept: set[int]) -> None:
        """What an interrupted snapshot or its clean-up left behind."""
        for name in names:
            is_journal = any(number not in kept for number in _numbers([name], "journal-"))
            is_snapshot = any(number < first for number in _numbers([name], "snapshot-"))
            if is_journal or is_snapshot or name.endswith(".tmp"):
                self._directory.remove(name)

    def close(self) -> None:
        """Call when ``is_idle``. All that was answered is durable already."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    # Port

    def submit(self, operations: Iterable[Operation], done: Callable[[Outcome], None]) -> None:
        evaluation = _Evaluation(operations, done)
        if self._unevaluated or not self._evaluate(evaluation):
            self._wait_for_evaluation(evaluation)

    def _wait_for_evaluation(self, waiting: _Evaluation | _LaterRead) -> None:
        self._unevaluated.append(waiting)
        if len(self._unevaluated) == 1:
            self._post(self._evaluate_on)

    def _evaluate_on(self) -> None:
        """One turn's worth of what is not evaluated yet."""
        if not self._unevaluated:
            return
        first = self._unevaluated[0]
        if isinstance(first, _LaterRead):
            self._enqueue(_Read(first.done, first.look, first.look()))
            self._unevaluated.popleft()
        elif self._evaluate(first):
            self._unevaluated.popleft()
        if self._unevaluated:
            self._post(self._evaluate_on)

    def _evaluate(self, evaluation: _Evaluation) -> bool:
        """Go on with it; gives whether that was its end."""
        application = evaluation.application
        if application is None:
            refusal = self._refusal()
            if refusal is not None:
                self._enqueue(_Submission(evaluation.done, refusal, []))
                return True
            application = evaluation.application = Application(
                self._tree, evaluation.operations, self._next_submission, self._session_id
            )
        known = len(application.effects)
        is_ended = application.go_on(OPERATIONS_A_TURN)
        if len(application.results) > MAX_OPERATIONS:
            application.refuse(Refused(RefusalReason.TOO_LARGE, -1, ""))
            is_ended = True
        if application.refused is not None:
            self._enqueue(_Submission(evaluation.done, application.refused, []))
            return True
        evaluation.payload += encode_effects(application.effects[known:])
        if is_ended:
            self._enqueue_applied(evaluation, application)
        return is_ended

    def _enqueue_applied(self, evaluation: _Evaluation, application: Application) -> None:
        outcome = Done(tuple(application.results))
        submission = _Submission(evaluation.done, outcome, application.effects)
        if application.effects:
            submission.payload = bytes(evaluation.payload)
            self._next_submission += 1
        self._enqueue(submission)

    def _refusal(self) -> Refused | None:
        if self._failure is not None or self._journal is None:
            return Refused(RefusalReason.UNAVAILABLE, -1, "")
        if len(self._waiting) + len(self._unevaluated) >= MAX_WAITING:
            return Refused(RefusalReason.UNAVAILABLE, -1, "")
        return None

    def get(
        self,
        path: str,
        done: Callable[[Node | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        if on_change is not None:
            self._data_watchers.setdefault(path, []).append(on_change)
        self._read(lambda: self._tree.get(path), done)

    def children(
        self,
        path: str,
        done: Callable[[list[str] | Failed | None], None],
        on_change: Watcher | None = None,
    ) -> None:
        if on_change is not None:
            self._child_watchers.setdefault(path, []).append(on_change)
        self._read(
            lambda: self._tree.children(path) if self._tree.get(path) is not None else None, done
        )

    def read_subtree(
        self, path: str, done: Callable[[list[tuple[str, Node]] | Failed], None]
    ) -> None:
        self._read(lambda: self._tree.subtree(path), done)

    def _read(self, look: Callable[[], _T], done: Callable[[_T], None]) -> None:
        if self._unevaluated:
            self._wait_for_evaluation(_LaterRead(done, look))
        else:
            self._enqueue(_Read(done, look, look()))

    # Group commit

    def _enqueue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_busy:
            self._is_busy = True
            # Not at once: what is submitted in this turn of the loop shares the frame.
            self._post(self._next_step)

    def _next_step(self) -> None:
        """One thing at a time: seal a long journal, or write a frame, or rest."""
        if self._is_snapshot_due():
            self._seal_journal()
        elif self._waiting:
            self._commit()
        else:
            self._is_busy = False

    def _commit(self) -> None:
        payload, count = self._take_batch()
        if not payload or self._failure is not None:
            self._deliver()
            return
        journal = self._journal
        assert journal is not None, "closed while submissions wait"
        frame = encode_frame(self._journal_next_submission, count, self._session_id, payload)
        work = _FrameWork(journal, self._journal_end, frame, self._reserve)

        def then(error: BaseException | None) -> None:
            if error is None:
                self._journal_end = work.end
                self._journal_next_submission += count
            elif _is_disk_full(error) and not work.is_written:
                self._take_back(Refused(RefusalReason.DISK_FULL, -1, ""))
            else:
                self._fail(error)
            self._deliver()

        self._run_blocking(work.run, then)

    def _take_batch(self) -> tuple[bytes, int]:
        """What waits, up to a frame's bound: its effects, and how many submissions made them."""
        payloads: list[bytes] = []
        size = 0
        while self._waiting and size < MAX_FRAME_BYTES:
            waiting = self._waiting.popleft()
            self._batch.append(waiting)
            if waiting.payload:
                payloads.append(waiting.payload)
                size += len(waiting.payload)
        return b"".join(payloads), len(payloads)

    def _deliver(self) -> None:
        """Call back in order, a few a turn; then go on with what came meanwhile."""
        for _ in range(min(DELIVERIES_A_TURN, len(self._batch))):
            waiting = self._batch.popleft()
            waiting.deliver()
            if self._data_watchers or self._child_watchers:
                self._fire_watchers(waiting.effects)
        self._post(self._deliver if self._batch else self._next_step)

    def _fire_watchers(self, effects: Sequence[Effect]) -> None:
        fired: list[Watcher] = []
        for path, before, after in effects:
            fired += self._data_watchers.pop(path, ())
            if (before is None) != (after is None):
                fired += self._child_watchers.pop(path, ())
                fired += self._child_watchers.pop(parent_of(path), ())
        for watcher in fired:
            watcher()

    # When a frame does not reach the disk

    def _take_back(self, outcome: Outcome) -> None:
        """Undo all that is not durable; the batch gets ``outcome``, the rest is refused with it.

        What waits behind the batch was evaluated on a tree that never came to be.
        """
        behind = outcome if isinstance(outcome, Refused) else _UNAVAILABLE
        self._take_back_evaluation(behind)
        for waiting in (*reversed(self._waiting), *reversed(self._batch)):
            waiting.take_back(self._tree)
        self._next_submission = self._journal_next_submission
        for waiting in self._batch:
            waiting.refuse(outcome)
        for waiting in self._waiting:
            waiting.refuse(behind)

    def _take_back_evaluation(self, outcome: Refused) -> None:
        """What is being evaluated is the newest of all; what has not begun meets the tree anew."""
        first = self._unevaluated[0] if self._unevaluated else None
        if isinstance(first, _Evaluation) and first.application is not None:
            first.application.refuse(outcome)

    def _fail(self, error: BaseException) -> None:
        """No retry: after a failed sync nobody knows what the disk holds until it is read anew."""
        self._failure = f"metadata journal: {error}"
        self._take_back(Unknown(self._failure))
        self._on_failure(self._failure)

    # Journal and snapshots

    def _reserve(self, end: int) -> None:
        """Keep zeros ahead of ``end``. Runs where the journal is written; failing is allowed."""
        self._journal_size = max(self._journal_size, end)
        wanted = self._wanted_reserve()
        if self._journal_size - end >= wanted:
            return
        assert self._journal is not None
        size = end + wanted + self._reserve_bytes
        try:
            self._journal.write(self._journal_size, bytes(size - self._journal_size))
        except OSError:
            return
        self._journal_size = size

    def _wanted_reserve(self) -> int:
        return self._reserve_bytes + RESERVE_A_NODE_BYTES * len(self._tree.nodes)

    def _is_snapshot_due(self) -> bool:
        return (
            self._journal_end > self._snapshot_at
            and not self._is_snapshotting
            and self._failure is None
        )

    def _seal_journal(self) -> None:
        """Go on in a new journal, durable before its first frame; then write the snapshot."""
        first, name = (
            self._journal_next_submission,
            _file_name("journal", self._journal_next_submission),
        )
        size = self._wanted_reserve() + self._reserve_bytes
        sealed, end = self._journal, self._journal_end
        assert sealed is not None
        opened: list[StoreFile] = []

        def create() -> None:
            journal = self._directory.open(name)
            try:
                journal.write(0, bytes(size))
                journal.datasync()
                self._directory.sync()
                # A frame that a full disk refused may have left a part of it behind the end.
                sealed.truncate(end)
                sealed.datasync()
            except OSError:
                journal.close()
                self._directory.remove(name)
                raise
            opened.append(journal)

        def then(error: BaseException | None) -> None:
            if error is None:
                self._switch_journal(opened[0], first, size)
            else:
                # Stay in the old journal; a half-made new one holds zeros and is ignored.
                self._snapshot_at = self._journal_end + self._journal_bound_bytes
                self._journal_size = self._journal_end
            self._next_step()

        self._run_blocking(create, then)

    def _switch_journal(self, journal: StoreFile, first: int, size: int) -> None:
        if self._journal is not None:
            self._journal.close()
        self._journal = journal
        self._journal_end, self._journal_size = 0, size
        self._is_snapshotting = True
        SnapshotWriter(
            self._directory,
            self._run_blocking,
            _file_name("snapshot", first),
            self.durable_nodes(),
            self._session_id,
            lambda size, error: self._snapshot_done(first, size, error),
        ).start()

    def durable_nodes(self) -> dict[str, Node]:
        """The tree without what waits: it may yet be taken back."""
        nodes = dict(self._tree.nodes)
        first = self._unevaluated[0] if self._unevaluated else None
        evaluated: Sequence[Effect] = ()
        if isinstance(first, _Evaluation) and first.application is not None:
            evaluated = first.application.effects
        for effects in (evaluated, *(waiting.effects for waiting in reversed(self._waiting))):
            for effect in reversed(effects):
                if effect.before is None:
                    del nodes[effect.path]
                else:
                    nodes[effect.path] = effect.before
        return nodes

    def _snapshot_done(self, first: int, size: int, error: BaseException | None) -> None:
        if error is not None:
            self._snapshot_at = self._journal_end + self._journal_bound_bytes
            self._is_snapshotting = False
            return
        self._snapshot_at = max(self._journal_bound_bytes, size)

        def clean_up() -> None:
            names = self._directory.names()
            newer = {number for number in _numbers(names, "journal-") if number >= first}
            self._remove_leftovers(names, first, newer)

        def then(_: BaseException | None) -> None:
            # What could not be removed is removed by the next snapshot or start.
            self._is_snapshotting = False

        self._run_blocking(clean_up, then)


_UNAVAILABLE = Refused(RefusalReason.UNAVAILABLE, -1, "")


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def _file_name(kind: str, number: int) -> str:
    return f"{kind}-{number:020d}"


def _numbers(names: Sequence[str], *prefixes: str) -> Iterator[int]:
    """Numbers in the whole files' names; half-written snapshots (``.tmp``) are none."""
    for name in names:
        for prefix in prefixes:
            if name.startswith(prefix) and name[len(prefix) :].isdigit():
                yield int(name[len(prefix) :])
