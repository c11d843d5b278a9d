"""The node that a page is about is in its address: /at/NAME/queue is the queue of the node that the user's context NAME
leads to. Two windows can show two nodes, and a form acts on the node of its page."""

from __future__ import annotations

import re

from vgpud.console.web.security import App, Receive, Scope, Send

_PATH = re.compile(r"/at/([A-Za-z0-9][A-Za-z0-9_.-]{0,63})(/.*)", re.DOTALL)
#: what belongs to this console, not to a node
_OWN = ("/at/", "/session/", "/static/", "/login", "/logout", "/theme", "/nodes")


def node_address(name: str) -> str:
    """In front of the addresses of a node's pages; "" is this machine's."""
    return f"/at/{name}" if name else ""


class NodePath:
    """ASGI middleware: request.state.node is the name of the context, "" for this machine's daemon."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["node"] = ""
            match = _PATH.fullmatch(str(scope["path"]))
            if match and not match[2].startswith(_OWN):
                scope = {**scope, "path": match[2], "state": {**scope["state"], "node": match[1]}}
        await self._app(scope, receive, send)
