"""What doctor makes of what ZooKeeper's servers say."""

from pathlib import Path

from appliance.checks import Verdict
from appliance.zookeeper_check import ask_srvr, check, servers
from tests.support.zookeeper import ZooKeeper

LEADER = "Zookeeper version: 3.9.3-c26634f, built on 2024\nMode: leader\n"


def test_servers_and_their_ports() -> None:
    assert servers("a:1,b , [::1]:3/kafka/one") == [("a", 1), ("b", 2181), ("::1", 3)]


def test_each_says_who_it_is() -> None:
    (found,) = check("a:1/path", lambda _: LEADER)
    assert (found.verdict, found.detail) == (Verdict.OK, "leader, version 3.9.3")


def test_without_a_majority_it_fails() -> None:
    def ask(address: tuple[str, int]) -> str:
        if address[1] > 1:
            raise ConnectionRefusedError(111, "refused")
        return LEADER

    assert [each.verdict for each in check("a:1,b:2", ask)] == [
        Verdict.OK,
        Verdict.WARN,
        Verdict.FAIL,
    ]
    assert check("a:1,b:1,c:2", ask)[-1].verdict is Verdict.WARN


def test_one_that_may_not_tell_is_not_called_broken() -> None:
    (found,) = check("a", lambda _: "srvr is not executed because it is not in the whitelist.")
    assert found.verdict is Verdict.INFO


def test_a_real_one(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path) as server:
        found = check(f"{server.address}/odradek", ask_srvr)
    assert [each.verdict for each in found] == [Verdict.OK]
    assert found[0].detail.startswith("standalone, version 3.")
    assert [each.verdict for each in check(server.address)] == [Verdict.WARN, Verdict.FAIL]
