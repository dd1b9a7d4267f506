"""The list of what the appliance stores, held against the database that it has."""

import pytest
from django.apps import apps
from django.db import connection

from dashboard.holdings import holdings

MIGRATIONS = "django_migrations"


@pytest.mark.django_db
def test_every_table_stands_in_the_list_once() -> None:
    listed = [table for each in holdings() for table in each.tables]
    assert len(listed) == len(set(listed))
    with connection.cursor() as cursor:
        there = set(connection.introspection.table_names(cursor)) - {MIGRATIONS}
    assert set(listed) == there
    assert {model._meta.db_table for model in apps.get_models(include_auto_created=True)} <= there


@pytest.mark.django_db
def test_everything_says_its_bound() -> None:
    for each in holdings():
        assert each.what
        assert each.bound
