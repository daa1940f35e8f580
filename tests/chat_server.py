"""A chat endpoint on this machine, for real over HTTP: it answers what a test says, well or badly, and counts."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """A request: its place among all, its place among equal bodies, what was in it."""

    number: int
    again: int
    body: dict
    headers: dict
    raw: bytes = field(repr=False)


@dataclass
class Answer:
    """What goes back. `claimed` is the Content-Length, where it is to differ from the body's."""

    body: object
    status: int = 200
    headers: dict = field(default_factory=dict)
    claimed: int | None = None
    delay: float = 0.0
    drip: float = 0.0  # seconds between single bytes
    reset: bool = False


def completion(text, finish="stop", usage=(100, 5, 40), **message):
    """A body as OpenAI's API gives it; `usage` is (prompt, completion, cached) tokens or None."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "served-model",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        ],
    }
    if usage is not None:
        prompt, answer, cached = usage
        body["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    return body


class ChatServer:
    """Serves `respond(asked) -> Answer` (or a body) until the block ends."""

    def __init__(self, respond):
        self.respond = respond
        self.asked, self.most_at_once = [], 0
        self._now, self._lock, self._equal, self.over = 0, threading.Lock(), Counter(), threading.Event()

    def __enter__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.serve(self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 128

            def handle_error(self, *_):  # clients of these tests hang up
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def counts(self):
        """How often each different body came."""
        return dict(self._equal)

    def serve(self, handler):
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._lock:
            asked = Asked(len(self.asked), self._equal[raw], json.loads(raw), dict(handler.headers), raw)
            asked.path = handler.path
            asked.at = time.monotonic()
            self._equal[raw] += 1
            self.asked.append(asked)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            answer = self.respond(asked)
            answer = answer if isinstance(answer, Answer) else Answer(answer)
            self.over.wait(answer.delay)
        finally:
            with self._lock:  # before the answer leaves: with it the client may send the next
                self._now -= 1
        self._send(handler, answer)

    def _send(self, handler, answer):
        if answer.reset:  # a zero linger makes close() send RST
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            handler.close_connection = True
            return
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        handler.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(answer.claimed if answer.claimed is not None else len(body)))
        handler.end_headers()
        if answer.drip:
            for n in range(len(body)):
                if self.over.wait(answer.drip):
                    return
                handler.wfile.write(body[n : n + 1])
                handler.wfile.flush()
            return
        handler.wfile.write(body)
        if answer.claimed is not None and answer.claimed > len(body):
            handler.close_connection = True
