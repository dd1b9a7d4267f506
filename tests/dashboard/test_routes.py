"""What addresses cost: the API is put together when it is asked for, and its names are there all the same."""

import subprocess
import sys

import pytest
from django.test import Client
from django.urls import resolve, reverse

from tests.support.odradek import REPOSITORY

_START = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import appliance.asgi
from django.urls import get_resolver, reverse
get_resolver().url_patterns
assert reverse("overview") and reverse("api_docs") == "/api/v1/docs"
found = [name for name in ("ninja", "dashboard.api.app") if name in sys.modules]
assert not found, found
assert reverse("api:openapi-json") == "/api/v1/openapi.json"
assert "ninja" in sys.modules
"""


def test_pages_do_without_the_api_until_somebody_asks_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _START], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_address_of_the_api_is_resolved_by_its_name() -> None:
    path = reverse("api:openapi-json")
    found = resolve(path)
    assert (found.namespace, found.url_name) == ("api", "openapi-json")


@pytest.mark.django_db
def test_its_documentation_wants_somebody_signed_in() -> None:
    answer = Client().get(reverse("api_docs"))
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(reverse("login"))
