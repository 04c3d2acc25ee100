"""A terminal of a notebook server, driven over the proxy as a browser would."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

from allotment_hub.host.probes import request
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

__all__ = ["type_in_terminal"]


def type_in_terminal(url: str, token: str, command: str, *, limit_s: float = 60) -> str:
    """Open a terminal of the server at `url` (…/user/NAME/), type the command, return what the screen shows
    until it is done."""
    base = url.rstrip("/")
    answer = request(f"{base}/api/terminals", method="POST", token=token, body={}, timeout_s=60)
    assert answer.ok, (answer.status, answer.body[:500], answer.problem)
    return asyncio.run(asyncio.wait_for(_type(base, str(answer.json()["name"]), token, command), limit_s))


async def _type(base: str, name: str, token: str, command: str) -> str:
    address = f"{base.replace('http', 'ws', 1)}/terminals/websocket/{name}"
    socket = await websocket_connect(HTTPRequest(address, headers={"Authorization": f"token {token}"}))
    mark, shown = uuid4().hex, ""
    half = len(mark) // 2
    # in two parts, so that the echo of what is typed does not look like the end
    await socket.write_message(json.dumps(["stdin", f"{command}; printf %s%s {mark[:half]} {mark[half:]}\r"]))
    try:
        while mark not in shown:
            text = await socket.read_message()
            assert isinstance(text, str), "the server closed the terminal"
            kind, *rest = json.loads(text)
            shown += rest[0] if kind == "stdout" else ""
        return shown
    finally:
        socket.close()
        while await socket.read_message() is not None:
            continue
        await asyncio.sleep(0.05)
