"""DescribeConfigs: what a small request may make the broker say."""

from __future__ import annotations

from pathlib import Path

from broker.metadata.requests import NewTopic
from broker.server.tasks import called_back
from tests.broker.server.running import on_loop, running

TOPIC = 2


@on_loop
async def test_a_resource_named_many_times_is_described_once(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        await called_back(r.broker.controller.create_topics, [NewTopic("t")], False)
        whole = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}
        one = {**whole, "configuration_keys": ["retention.ms"]}
        answer = await r.request(
            "describe_configs",
            4,
            resources=[whole] * 3000 + [one] * 3000,
            include_synonyms=False,
            include_documentation=False,
        )
        counts = [(each.resource_name, len(each.configs)) for each in answer.results]
        assert [name for name, _ in counts] == ["t", "t"]
        assert counts[0][1] > 20
        assert counts[1][1] == 1
