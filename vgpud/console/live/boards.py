"""The boards of all users who are logged in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from vgpud.console.live.board import Board
from vgpud.console.live.channel import Bridge
from vgpud.console.live.data import Api
from vgpud.console.login.client import Broker, RefusedError, User

#: a board without windows is closed after this time
UNUSED_S = 3600.0
_LOOK_EVERY_S = 30.0
#: of a node of a context: the agent, whose connection it is, does not say why it has none
AWAY = "node {node} does not answer: `vgpu context use {node}` and `vgpu status` say why"


@dataclass
class _Open:
    board: Board
    bridge: Bridge
    user: User  # of the last session that used it: its cookie gets further connections


class Boards:
    """Use it in an `async with`. folder: where no other process can make a socket or connect to one."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker = broker
        self._open: dict[tuple[int, str], _Open] = {}  # by uid and node
        self._numbers = itertools.count()
        self._folder = folder
        self._cleaner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Boards:
        self._cleaner = asyncio.create_task(self._clean())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._cleaner:
            self._cleaner.cancel()
        for key in list(self._open):
            await self._close(key)

    async def of(self, user: User, node: str = "") -> Board:
        """This user's board of a node: the name of a context, "" = this machine."""
        key = user.uid, node
        known = self._open.get(key)
        if known:
            known.user = user
            return known.board
        name = f"{user.uid}-{next(self._numbers)}.sock" if node else f"{user.uid}.sock"
        bridge = Bridge(self._folder / name, lambda: self._connect(key))
        board = Board(Api(bridge.target), AWAY.format(node=node) if node else "")
        self._open[key] = _Open(board, bridge, user)
        await bridge.open()
        board.open()
        return board

    async def _connect(self, key: tuple[int, str]) -> socket.socket:
        uid, node = key
        try:
            agent = await self._broker.agent(self._open[key].user)
            return await agent.connect(node)
        except RefusedError:
            raise
        except Exception:
            self._broker.forget(uid)
            raise

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for key, known in list(self._open.items()):
                unused = not known.board.windows and time.monotonic() - known.board.used_s > UNUSED_S
                if unused or not await self._broker.alive(key[0]):
                    await self._close(key)

    async def _close(self, key: tuple[int, str]) -> None:
        known = self._open.pop(key)
        with contextlib.suppress(Exception):
            await known.board.close()
        await known.bridge.close()
        if not any(uid == key[0] for uid, _ in self._open):
            self._broker.forget(key[0])
