"""The store's table of what the orders of queues have learnt (Machine.knowledge), a row for each queue.

It is written periodically. What ended after that is found among the jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.core.checksums import seal, unseal
from vgpud.core.jobs.model import Job

#: the store's migration to this table
TABLES = ("CREATE TABLE queue_orders (queue TEXT PRIMARY KEY, body TEXT NOT NULL)",)
#: jobs that have ended since it was written: more are not looked at
ENDED_MAX = 1000


@dataclass(frozen=True, slots=True)
class KeptOrder:
    """What the order of a queue had learnt, and the jobs that have ended since, in the order of their ends."""

    queue: str
    knowledge: dict[str, Any]
    ended_jobs: tuple[Job, ...] = ()


def save(db: Any, orders: Mapping[str, dict[str, Any] | None], at_ns: int) -> None:
    """Of these queues, at that time of the queue's clock; None: its order learns nothing."""
    for queue, knowledge in orders.items():
        if knowledge is None:
            db.execute("DELETE FROM queue_orders WHERE queue = ?", (queue,))
        else:
            body = seal({"queue": queue, "at_ns": at_ns, "knowledge": knowledge})
            db.execute("INSERT OR REPLACE INTO queue_orders VALUES (?, ?)", (queue, body))


def load(db: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """(queue, time, knowledge) of all; a damaged row is left out, as its queue can learn again."""
    found = []
    for (text,) in db.execute("SELECT body FROM queue_orders ORDER BY queue"):
        with contextlib.suppress(ValueError, KeyError):
            body = unseal(text)
            found.append((body["queue"], body["at_ns"], body["knowledge"]))
    return found
