"""The nodes that a user reaches from here: this machine, and those of the user's contexts (`vgpu context`)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from vgpud.console.login import wire
from vgpud.console.login.client import Broker, RefusedError, User

#: what is known of a user's contexts is asked for again after this time; users that are remembered
KNOWN_S, USERS_MAX = 15.0, 256


@dataclass(frozen=True, slots=True)
class Node:
    """name: of the context, "" = this machine; uid: the user's there."""

    name: str
    host: str
    uid: int


class Nodes:
    """For all users, for a moment."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: OrderedDict[int, tuple[float, list[Node]]] = OrderedDict()

    async def of(self, user: User) -> list[Node]:
        """This machine first. Contexts that cannot be read are left out: `vgpu context ls` says why."""
        known = self._known.get(user.uid)
        if known and time.monotonic() - known[0] < KNOWN_S:
            return known[1]
        own = Node("", "", user.uid)
        try:
            agent = await self._broker.agent(user)
            found = [own, *(Node(str(c["name"]), str(c["host"]), int(c["uid"])) for c in await agent.contexts())]
        except (RefusedError, wire.GoneError, asyncio.TimeoutError):
            found = [own]
        self._known[user.uid] = time.monotonic(), found
        while len(self._known) > USERS_MAX:
            self._known.popitem(last=False)
        return found
