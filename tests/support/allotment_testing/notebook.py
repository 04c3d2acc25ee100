"""A notebook server's kernels, driven over the proxy as a browser would."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

from allotment_hub.host.probes import request
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

__all__ = ["Notebook"]


class Notebook:
    """One server at `url` (…/user/NAME/), reached with a hub token."""

    def __init__(self, *, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def start_kernel(self) -> str:
        """The id of a new kernel."""
        answer = request(f"{self._url}/api/kernels", method="POST", token=self._token, body={}, timeout_s=60)
        assert answer.status == 201, (answer.status, answer.body[:500], answer.problem)
        return str(answer.json()["id"])

    def run(self, kernel: str, code: str, *, limit_s: float = 60) -> str:
        """What the code prints; an error's text when it raises."""
        return asyncio.run(asyncio.wait_for(self._run(kernel, code), limit_s))

    async def _run(self, kernel: str, code: str) -> str:
        address = f"{self._url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
        headers = {"Authorization": f"token {self._token}"}
        socket = await websocket_connect(HTTPRequest(address, headers=headers, connect_timeout=20))
        message = uuid4().hex
        header = {"msg_id": message, "msg_type": "execute_request", "version": "5.3", "session": message}
        header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        envelope = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell"}
        await socket.write_message(json.dumps(envelope | {"content": content, "buffers": []}))
        try:
            return await _collect(socket, message)
        finally:
            socket.close()
            # its own task closes the connection; without this the loop would end before it
            while await socket.read_message() is not None:
                continue
            await asyncio.sleep(0.05)


async def _collect(socket: object, message: str) -> str:
    said = ""
    while True:
        text = await socket.read_message()  # type: ignore[attr-defined]
        assert text is not None, "the server closed the kernel's channel"
        answer = json.loads(text)
        if answer["parent_header"].get("msg_id") != message:
            continue
        kind, content = answer["msg_type"], answer["content"]
        if kind == "stream":
            said += content["text"]
        elif kind == "error":
            said += f"{content['ename']}: {content['evalue']}"
        elif kind == "status" and content["execution_state"] == "idle":
            return said
