"""The shelf: who looks after a pause gets a new snapshot, and nobody waits twice for one that does not come."""

from threading import Thread

from dashboard.snapshots import ClusterSnapshot, SnapshotShelf

PATIENCE_S = 20.0
"""Never waited to its end where something comes."""


def taken(at_ms: int, groups_ms: int | None = None, stale_ms: int | None = None) -> ClusterSnapshot:
    return ClusterSnapshot(
        at_ms, None, None, {}, {}, groups_taken_ms=groups_ms, stale_since_ms=stale_ms
    )


def followed_shelf(snapshot: ClusterSnapshot) -> SnapshotShelf:
    shelf = SnapshotShelf()
    shelf.is_followed = True
    shelf.put(snapshot)
    return shelf


def put_when_asked(shelf: SnapshotShelf, *snapshots: ClusterSnapshot) -> Thread:
    """A collector that puts them there once it is woken."""

    def follow() -> None:
        assert shelf.woken.wait(PATIENCE_S)
        for snapshot in snapshots:
            shelf.put(snapshot)

    thread = Thread(target=follow)
    thread.start()
    return thread


def test_the_first_look_after_a_pause_waits_for_a_new_snapshot() -> None:
    shelf = followed_shelf(taken(1_000))
    thread = put_when_asked(shelf, taken(60_000))

    found = shelf.look(60_000, wait_s=PATIENCE_S)

    thread.join()
    assert found == taken(60_000)


def test_where_groups_matter_new_groups_are_waited_for() -> None:
    shelf = followed_shelf(taken(1_000, groups_ms=1_000))
    thread = put_when_asked(shelf, taken(60_000, groups_ms=1_000), taken(60_000, groups_ms=60_100))

    found = shelf.look(60_000, wait_s=PATIENCE_S, needs_groups=True)

    thread.join()
    assert found is not None
    assert found.groups_taken_ms == 60_100


def test_what_does_not_come_in_time_is_not_waited_for_again() -> None:
    old = taken(1_000)
    shelf = followed_shelf(old)

    assert shelf.look(60_000, wait_s=0.01) is old
    shelf.woken.clear()
    assert shelf.look(61_000, wait_s=PATIENCE_S) is old
    assert shelf.woken.is_set(), "it is asked for all the same"


def test_a_silent_cluster_and_a_fresh_snapshot_are_shown_at_once() -> None:
    for snapshot in (taken(1_000, stale_ms=2_000), taken(50_000)):
        assert followed_shelf(snapshot).look(60_000, wait_s=PATIENCE_S) is snapshot


def test_a_first_look_asks_for_what_comes_next_at_the_pace_that_is_set() -> None:
    for age_ms, is_asked in ((2_000, False), (2_001, True)):
        shelf = SnapshotShelf(pace_ms=1_000)
        shelf.put(taken(50_000))

        assert shelf.look(50_000 + age_ms) == taken(50_000)
        assert shelf.woken.is_set() == is_asked


def test_groups_that_come_later_than_the_rest_hold_up_nobody() -> None:
    usual = taken(55_000, groups_ms=40_000)

    found = followed_shelf(usual).look(60_000, wait_s=PATIENCE_S, needs_groups=True)

    assert found is usual


def test_without_a_collector_nobody_waits() -> None:
    shelf = SnapshotShelf()
    shelf.put(taken(1_000))

    assert shelf.look(60_000, wait_s=PATIENCE_S) == taken(1_000)
