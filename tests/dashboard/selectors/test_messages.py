"""What a page shows of a search while it goes on."""

from dashboard.scan.requests import Bounds, Cluster, Range, ScanRequest, Wanted
from dashboard.scan_pool import Scan
from dashboard.selectors.messages import view_of


def test_a_search_that_ends_while_the_page_is_made_is_asked_again() -> None:
    """Else the page would call what it has got all that there is."""
    scan = Scan("id", 1, ScanRequest(Cluster(""), Range("t"), Wanted(), Bounds()), 0)
    view = view_of(scan, {}, newest_first=True)

    scan.rows.append({"offset": "0"})
    scan.state = "done"
    scan.finished.set()

    assert (view.row_count, view.is_finished) == (0, False)
    after = view_of(scan, {}, newest_first=True)
    assert (after.row_count, after.is_finished) == (1, True)
