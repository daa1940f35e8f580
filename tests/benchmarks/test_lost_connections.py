"""Web servers that say nothing of a file's length, send a part of it, or fall silent."""

import gzip
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from switchmem.benchmarks import DataError
from switchmem.benchmarks.aitw.records import AitwReader, is_shard
from switchmem.benchmarks.convert import CHUNKS, convert, survey
from switchmem.benchmarks.sources import find_files, http_timeout, open_source
from switchmem.benchmarks.store import StepStore

NAME = "general-00000-of-00001"


def silent(done, total):
    pass


class Server(ThreadingHTTPServer):
    """Sends `data` up to `cut` without a word on its length, counts what is asked, and stalls if told to."""

    daemon_threads = True

    def __init__(self):
        self.data, self.cut, self.asked, self.stalled = b"", None, 0, threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/{NAME}"


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        server = self.server
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        if self.command == "GET":
            server.asked += 1
            self.wfile.write(server.data[: server.cut])
            self.wfile.flush()
            if server.stalled.is_set():
                time.sleep(5)
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    own = Server()
    threading.Thread(target=own.serve_forever, daemon=True).start()
    yield own
    own.shutdown()
    own.server_close()


@pytest.fixture
def shard(write_tfrecord, encode_example, aitw_features, tmp_path):
    """A gzipped shard of eight steps of noise, of which three quarters do not end the stream."""
    records = [
        encode_example(aitw_features(step_id=[i], **{"image/encoded": [os.urandom(72)]})) for i in range(8)
    ]  # fmt: skip
    data = write_tfrecord(tmp_path / NAME, records).read_bytes()
    assert gzip.decompress(data)
    return data


def test_what_a_lost_connection_leaves_is_not_kept(server, shard, tmp_path):
    server.data, server.cut = shard, len(shard) * 3 // 4
    files = find_files(server.url, is_shard)
    assert files[0].size == 0

    def look():
        return survey(AitwReader(), files, tmp_path / "survey", 1, silent)

    first = look()
    assert 0 < first.report.kept < 8 and len(first.report.faults) == 1
    assert "ends inside its gzip stream" in first.report.faults[0].reason
    server.cut = None
    found = look()
    assert found.report.kept == 8 and found.report.faults == []
    asked = server.asked
    assert look().report == found.report and server.asked == asked  # what is whole is read once

    ids = [step_id for episode in found.episodes for step_id in episode.step_ids]
    server.cut = len(shard) * 3 // 4
    assert convert(AitwReader(), found, {"all": ids}, tmp_path / "steps", 1, silent)["all"] == first.report.kept
    assert (tmp_path / "steps" / CHUNKS).is_dir()
    server.cut = None
    found = look()
    assert convert(AitwReader(), found, {"all": ids}, tmp_path / "steps", 1, silent) == {"all": 8}
    assert found.report.faults == [] and len(StepStore(tmp_path / "steps" / "all")) == 8


def test_a_silent_server_ends_the_wait(server, shard, monkeypatch):
    monkeypatch.setenv("SWITCHMEM_HTTP_TIMEOUT", "0.5")
    server.data, server.cut = shard, 100
    server.stalled.set()
    start = time.monotonic()
    with pytest.raises(DataError, match="cannot be read beyond byte"):
        open_source(find_files(server.url, is_shard)[0]).read()
    assert time.monotonic() - start < 4


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_wait_that_is_no_time_is_refused(monkeypatch, text):
    monkeypatch.setenv("SWITCHMEM_HTTP_TIMEOUT", text)
    with pytest.raises(DataError, match=r"`\$SWITCHMEM_HTTP_TIMEOUT` must be a number of seconds above 0"):
        find_files("http://127.0.0.1:9/x-1", is_shard)


def test_a_wait_has_a_default(monkeypatch):
    monkeypatch.delenv("SWITCHMEM_HTTP_TIMEOUT", raising=False)
    assert http_timeout() == 60.0
