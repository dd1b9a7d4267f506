from datetime import timedelta

import pytest
from django.utils import timezone

from dashboard import leases
from dashboard.models import Lease

pytestmark = pytest.mark.django_db


def test_one_holds_it_until_it_is_over_or_given_up() -> None:
    assert leases.hold("x", "a", 30)
    assert leases.hold("x", "a", 30)
    assert not leases.hold("x", "b", 30)
    assert leases.hold("y", "b", 30)
    assert leases.holder_of("x") == "a"
    leases.release("x", "a")
    assert leases.hold("x", "b", 30)
    Lease.objects.filter(name="x").update(until=timezone.now() - timedelta(seconds=1))
    assert leases.holder_of("x") is None
    assert leases.hold("x", "a", 30)
