"""Leases in the database: one holder at a time among all processes of all nodes.

A holder renews well before the end; when it dies, the next one takes over once the time is up. The
times are the database clients' wall clocks: nodes whose clocks differ by more than a lease lasts
may hold one twice, so what is done under a lease must bear being done twice.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from dashboard.models import Lease

SCHEDULER = "scheduler"
"""Beat: who sends what is due."""
ALERTS = "alerts"
"""The web process that evaluates alerts."""
FILES_TRANSPORT = "files-transport"
"""The one node whose worker takes its messages from files of its own."""
TRANSPORT_S = 150.0
"""Of that lease, which each minute's sweep renews."""


def hold(name: str, holder: str, seconds: float) -> bool:
    """Take the lease or renew it; False while somebody else has it."""
    now = timezone.now()
    until = now + timedelta(seconds=seconds)
    mine = Q(holder=holder) | Q(until__lt=now)
    if Lease.objects.filter(mine, name=name).update(holder=holder, until=until):
        return True
    try:
        with transaction.atomic():
            _, is_new = Lease.objects.get_or_create(
                name=name, defaults={"holder": holder, "until": until}
            )
    except IntegrityError:
        return False
    return is_new


def renew(name: str, holder: str, seconds: float) -> bool:
    """First thing in a transaction: whether it is still ours, which it then stays to its end.

    A holder that slept through the end of its lease finds that somebody else has taken it.
    """
    until = timezone.now() + timedelta(seconds=seconds)
    return Lease.objects.filter(name=name, holder=holder).update(until=until) > 0


def take_from_dead(name: str, holder: str, seconds: float) -> bool:
    """Take over from a process (see ``this_process``) that can be seen not to live any more."""
    other = holder_of(name)
    if other is None or not is_dead(other):
        return False
    until = timezone.now() + timedelta(seconds=seconds)
    return Lease.objects.filter(name=name, holder=other).update(holder=holder, until=until) > 0


def this_process() -> str:
    """A holder's name. What stands before the colon names those whose life can be seen from here."""
    return f"{_neighbourhood()}:{os.getpid()}"


def is_dead(holder: str) -> bool:
    neighbourhood, _, pid = holder.rpartition(":")
    if neighbourhood != _neighbourhood() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _neighbourhood() -> str:
    """Host and PID namespace: containers may share a host's name, and number their own."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()[:80]}/{namespace}"


def release(name: str, holder: str) -> None:
    """Let the next one take over at once."""
    Lease.objects.filter(name=name, holder=holder).update(until=timezone.now())


def holder_of(name: str) -> str | None:
    """Who holds it now; None when nobody does."""
    lease = Lease.objects.filter(name=name, until__gte=timezone.now()).first()
    return lease.holder if lease is not None else None
