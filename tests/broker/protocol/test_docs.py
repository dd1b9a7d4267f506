from __future__ import annotations

from broker.protocol.api_versions import SERVED
from tests.support.generate_docs_protocol import REMARKS, kafka_ranges, render


def test_every_api_of_kafka_is_served_or_listed_as_left_out() -> None:
    served, _, left_out = render().partition("## Left out")
    for key in kafka_ranges():
        assert f"\n| {key} | " in (served if key in SERVED else left_out)


def test_versions_are_those_of_kafka_or_explained() -> None:
    kafka = kafka_ranges()
    for key, api_range in SERVED.items():
        assert (api_range.advertised_min, api_range.max_version) == kafka[key] or key in REMARKS
        assert api_range.min_version == kafka[key][0] or key in REMARKS
        assert api_range.max_version <= kafka[key][1]
