"""Files below local folders and URLs: found, opened, and never followed out of their root."""

import errno
import io
import os
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from switchmem.benchmarks import DataError
from switchmem.benchmarks.sources import SourceFile, find_files, open_source

FILES = {"general/b-1": b"one", "general/a-2": b"second", "single/deep/c-3": bytes(300_000), "README.md": b"no"}


def accept(name):
    return "-" in name


def fill(folder):
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def serve(handler):
    """A local server; its address, and what ends it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop():
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}", stop


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def roots(tmp_path):
    """The same files by every way."""
    local = fill(tmp_path / "local")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    memory = fsspec.filesystem("memory")
    for name, data in FILES.items():
        memory.pipe(f"/sources-test/{name}", data)
    address, stop = serve(partial(Quiet, directory=str(local)))
    yield {
        "path": local,
        "text": str(local),
        "file": f"file://{local}",
        "memory": "memory://sources-test",
        "zip": f"zip://::file://{tmp_path / 'data.zip'}",
        "http": f"{address}/",
    }
    stop()
    memory.rm("/sources-test", recursive=True)


@pytest.mark.parametrize("kind", ["path", "text", "file", "memory", "zip", "http"])
def test_the_same_files_are_found_and_read_everywhere(roots, kind):
    found = find_files(roots[kind], accept)
    assert [source.name for source in found] == ["general/a-2", "general/b-1", "single/deep/c-3"]
    for source in found:
        counts = []
        with open_source(replace(source, on_read=counts.append)) as file:
            assert file.read() == FILES[source.name]
        assert source.size == sum(counts) == len(FILES[source.name])
    assert find_files(roots[kind], accept) == found  # sizes and stamps too: nothing has changed


@pytest.mark.parametrize("kind", ["text", "file", "memory", "http"])
def test_a_single_file_is_a_root_of_its_own_whatever_its_name(roots, kind):
    root = str(roots[kind]).rstrip("/")
    (source,) = find_files(f"{root}/README.md", accept)
    assert source.name == "README.md"
    with open_source(source) as file:
        assert file.read() == b"no"


def test_a_changed_file_has_another_stamp(tmp_path):
    before = find_files(fill(tmp_path), accept)
    (tmp_path / "general/b-1").write_bytes(b"two")
    after = find_files(tmp_path, accept)
    assert [a.name for a, b in zip(after, before, strict=True) if a != b] == ["general/b-1"]


def test_a_missing_an_empty_and_an_unreachable_root_are_clear(roots, tmp_path):
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "nowhere", tmp_path / "empty", "memory://nothing-here", f"{roots['http']}none/"):
        with pytest.raises(DataError) as error:
            find_files(root, accept)
        assert str(root) in str(error.value) and "heck" in str(error.value)
    with pytest.raises(DataError, match="cannot be opened"):
        find_files("nosuchprotocol://bucket/data", accept)
    with pytest.raises(DataError, match="cannot be listed"):
        find_files("http://127.0.0.1:9/", accept)


def test_links_out_of_the_root_are_refused_and_links_inside_count_once(tmp_path):
    root = fill(tmp_path / "root")
    (root / "general/again-1").symlink_to(root / "general/b-1")
    (root / "named-5").symlink_to(root / "README.md")  # only its link has a name that is wanted
    (root / "loop").symlink_to(root)
    names = [source.name for source in find_files(root, accept)]
    assert names == ["general/a-2", "general/b-1", "named-5", "single/deep/c-3"]
    (tmp_path / "secret-1").write_bytes(b"secret")
    (root / "out-1").symlink_to(tmp_path / "secret-1")
    with pytest.raises(DataError, match=r"out-1 must lie below .*got a link to .*secret-1"):
        find_files(root, accept)
    (root / "out-1").unlink()
    (root / "folder").symlink_to(tmp_path)
    with pytest.raises(DataError, match="folder must lie below"):
        find_files(root, accept)
    (tmp_path / "linked").symlink_to(root)
    (root / "folder").unlink()
    assert [source.name for source in find_files(tmp_path / "linked", accept)] == names


def test_a_wanted_name_that_is_no_file_is_refused_and_not_left_out(tmp_path):
    """What an interrupted download or a purged cache leaves would else be data that is missing without a word."""
    path = fill(tmp_path) / "general" / "odd-9"
    path.symlink_to(tmp_path / "purged-9")
    with pytest.raises(DataError, match=r"odd-9 must be a regular file, got a link to .*purged-9, where no file is"):
        find_files(tmp_path, accept)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(DataError, match="odd-9 must lead to a file, got links in a circle"):
        find_files(tmp_path, accept)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="odd-9 must be a regular file, got a pipe"):
        find_files(tmp_path, accept)
    path.rename(path.with_name("odd"))  # a name that is not wanted may be anything
    assert len(find_files(tmp_path, accept)) == 3


def test_a_folder_that_cannot_be_listed_is_told(tmp_path, monkeypatch):
    list_folder = os.scandir

    def scandir(path):
        if str(path).endswith("single"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match="single must be readable, got: Permission denied"):
        find_files(fill(tmp_path), accept)


def test_a_root_that_no_file_system_takes_is_told():
    with pytest.raises(DataError, match="cannot be looked at: File name too long"):
        find_files("x" * 300, accept)


def test_an_index_page_cannot_lead_elsewhere():
    class Sly(BaseHTTPRequestHandler):
        links = ("good-1", "../up-1", "/data/../up-2", "/up-3", "http://127.0.0.1:9/x-4", "%2e%2e/up-5", "./sub/")
        asked = []

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            Sly.asked.append(self.path)
            page = "".join(f'<a href="{link}">x</a>' for link in self.links) if self.path == "/data/" else "x"
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(page.encode())

        def log_message(self, *args):
            pass

    address, stop = serve(Sly)
    try:
        assert [source.name for source in find_files(f"{address}/data/", accept)] == ["good-1"]
    finally:
        stop()
    assert all(path.startswith("/data/") and "up-" not in path for path in Sly.asked)


def test_a_connection_that_ends_early_is_no_damage_of_the_file():
    class Short(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(bytes(400))
            self.close_connection = True

        def log_message(self, *args):
            pass

    address, stop = serve(Short)
    try:
        (source,) = find_files(f"{address}/general-1", accept)
        assert source.size == 1000
        with pytest.raises(DataError, match="Run the same command again|run the same command again"):
            open_source(source).read()
    finally:
        stop()


def test_a_file_that_has_shrunk_or_gone_is_told(tmp_path):
    source = find_files(fill(tmp_path), accept)[2]
    Path(source.url).write_bytes(bytes(1000))
    with pytest.raises(DataError, match="must have 300000 bytes, got 1000"):
        open_source(source).read()
    Path(source.url).unlink()
    with pytest.raises(DataError, match="cannot be opened"):
        open_source(source)


def test_what_is_opened_is_buffered_and_closed_with_its_source(tmp_path):
    file = open_source(SourceFile(str(fill(tmp_path) / "general/a-2"), "a", 6))
    assert isinstance(file, io.BufferedReader) and file.peek(2)[:2] == b"se"
    raw = file.raw
    file.close()
    assert raw.closed and raw._file.closed
