"""Saved filters: what is kept of an address, and how many."""

import pytest
from django.test import Client

from dashboard.models import SavedFilter, User
from dashboard.services import saved_filters
from dashboard.services.saved_filters import MAX_FILTERS, FilterRefused, offered, save

pytestmark = pytest.mark.django_db


@pytest.fixture
def vera() -> User:
    return User.objects.create_user("vera")


def test_where_a_page_stands_is_no_part_of_a_search(vera: User) -> None:
    query = "filter=json.n+%3E+1&cursor=AAAA&way=backward&have=50&unknown=1&key="
    saved = save(owner=vera, place="messages", topic="t", name=" a  b ", query=query)
    assert (saved.name, saved.query) == ("a b", "filter=json.n+%3E+1")


def test_the_same_name_is_written_anew_and_topics_are_told_apart(vera: User) -> None:
    for topic, query in (("t", "key=1"), ("t", "key=2"), ("", "key=3"), ("u", "key=4")):
        save(owner=vera, place="messages", topic=topic, name="mine", query=query)
    found = {(one.topic, one.query) for one in offered(vera, "messages", "t")}
    assert found == {("t", "key=2"), ("", "key=3")}
    assert offered(vera, "tail") == []


@pytest.mark.parametrize(
    ("place", "name", "query"),
    [
        ("messages", "x", ""),
        ("messages", "x", "start=sideways"),
        ("messages", "x", "filter=" + "y" * 2001),
        ("messages", "", "key=1"),
        ("messages", "x" * 81, "key=1"),
        ("messages", "\u202ex", "key=1"),
        ("tail", "x", "&".join(f"topic=t{number}" for number in range(11))),
        ("tail", "x", "topic=t&last=many"),
        ("tail", "x", "topic=t&filter=" + "y" * 5000),
    ],
)
def test_what_the_page_would_not_take_is_not_saved(
    vera: User, place: str, name: str, query: str
) -> None:
    with pytest.raises(FilterRefused):
        save(owner=vera, place=place, topic="", name=name, query=query)
    assert not SavedFilter.objects.exists()


def test_a_person_has_so_many_and_deletes_only_own_ones(vera: User) -> None:
    SavedFilter.objects.bulk_create(
        SavedFilter(owner=vera, place="tail", name=str(number), query="topic=t")
        for number in range(MAX_FILTERS)
    )
    with pytest.raises(FilterRefused, match="delete one first"):
        save(owner=vera, place="tail", topic="", name="one more", query="topic=t")
    save(owner=vera, place="tail", topic="", name="0", query="topic=u")
    other = User.objects.create_user("other")
    first = SavedFilter.objects.filter(owner=vera)[0]
    saved_filters.delete(owner=other, pk=first.pk)
    assert SavedFilter.objects.count() == MAX_FILTERS
    saved_filters.delete(owner=vera, pk=first.pk)
    assert SavedFilter.objects.count() == MAX_FILTERS - 1


def test_a_page_that_there_cannot_be_is_not_gone_back_to(vera: User, client: Client) -> None:
    client.force_login(vera, "django.contrib.auth.backends.ModelBackend")
    form = {"place": "messages", "topic": "a/b", "name": "x", "query": "key=1"}
    assert client.post("/filters/", form).status_code == 404
    assert client.post("/filters/1/delete/", form).status_code == 404
    assert client.post("/filters/", {**form, "place": "tail"}).status_code == 404
    back = client.post("/filters/", {**form, "topic": "t"})
    assert back.headers["Location"] == "/topics/t/messages/?key=1"
