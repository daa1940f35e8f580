"""Source files under a local folder or any fsspec URL: found once, then opened from any process.

    files = find_files("gs://bucket/aitw", accept=lambda name: name.startswith("general/"))
    with open_source(files[0]) as file:
        head = file.read(2)

Local paths need nothing. ``http://``, ``memory://`` and ``zip://member::archive`` come with fsspec; ``gs://`` and
``s3://`` need the package that fsspec names when it is missing. A web server that is silent for
`$SWITCHMEM_HTTP_TIMEOUT` seconds (60) ends the run with a message; other file systems have waits of their own.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import unquote

from switchmem.benchmarks.base import DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

BUFFER = 1 << 18  # bytes per read: few calls from Python, and no more memory than a shard's first rows
TIMEOUT = "SWITCHMEM_HTTP_TIMEOUT"
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")  # as file systems name it


@dataclass(frozen=True)
class SourceFile:
    """One file of a recording.

    Args:
        url: absolute local path, or fsspec URL; enough to open the file from any process.
        name: path below the root, with "/".
        size: bytes; 0 where the server does not say.
        stamp: time of the last change or the server's mark of the content, "" where unknown.
        on_read: called with the number of bytes of each read, for a progress bar.
    """

    url: str
    name: str
    size: int
    stamp: str = ""
    on_read: Callable[[int], None] | None = field(default=None, compare=False, repr=False)


def may_be_cut(source: SourceFile) -> bool:
    """Whether a connection that ends early looks like the file's end, because its server does not say its length."""
    return is_url(source.url) and not source.size


def is_url(root: str | Path) -> bool:
    """Whether the text is an fsspec URL and not a local path.

    >>> is_url("https://host/aitw"), is_url("/data/aitw")
    (True, False)
    """
    return "://" in str(root) or "::" in str(root)


def find_files(root: str | Path, accept: Callable[[str], bool]) -> list[SourceFile]:
    """Files at any depth below a folder, or the one file that `root` is.

    Nothing outside the root is followed: links that lead out of a local folder are refused, and entries of a listing
    that point elsewhere are left out.

    Args:
        root: local path or fsspec URL of a folder or file. An http folder must have an index page.
        accept: whether the file of that name (path below the root, with "/") is wanted; not asked where the root is a
            file itself.

    Returns:
        The files, sorted by name.

    Raises:
        DataError: if the root is missing, a folder cannot be listed, there is no such file or one that is no regular
            file (a link to nothing, a pipe), or a link leads out of the root.
    """
    found = sorted(_remote_files(str(root), accept) if is_url(root) else _local_files(Path(root), accept), key=_by_name)
    if not found:
        where = root if is_url(root) else Path(root).absolute()
        raise DataError(f"No file of the wanted kind in {where}. Looked at any depth below it; check the path.")
    return found


def _by_name(source: SourceFile) -> str:
    return source.name


def _local_files(root: Path, accept: Callable[[str], bool]) -> list[SourceFile]:
    try:
        there = root.exists()
    except OSError as error:  # a name that is too long, or a folder above that may not be entered
        raise DataError(f"{str(root)[:200]} cannot be looked at: {error.strerror}. Check the path.") from error
    if not there:
        raise DataError(f"Nothing at {root.absolute()}. Check the path.")
    real_root = root.resolve()
    if real_root.is_file():
        return [_local_file(real_root, root.name)]
    found: dict[Path, SourceFile] = {}
    for folder, folders, names in os.walk(real_root, onerror=_refuse):  # which does not go into linked folders
        for name in sorted(folders):
            _real(Path(folder, name), real_root)
        for name in sorted(names):
            path = Path(folder, name)
            below = path.relative_to(real_root).as_posix()
            if not accept(below):
                continue
            real = _real(path, real_root)
            if not real.is_file():  # left out, it would be missing from the data without a word
                odd = f"a link to {real}, where no file is" if path.is_symlink() else "a pipe, socket or device"
                raise DataError(f"{path} must be a regular file, got {odd}. Fetch the file again, or remove it.")
            if real not in found or not path.is_symlink():  # a file and a link to it are one file
                found[real] = _local_file(path, below)
    return list(found.values())


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} must be readable, got: {error.strerror}. Check its rights.") from error


def _real(path: Path, root: Path) -> Path:
    """The file or folder itself, behind any links."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:
        raise DataError(f"{path} must lead to a file, got links in a circle. Remove it.") from error
    if not real.is_relative_to(root):
        raise DataError(
            f"{path} must lie below {root}, got a link to {real}. Copy it there, or give the folder that it lies in."
        )
    return real


def _local_file(path: Path, name: str) -> SourceFile:
    status = path.stat()
    return SourceFile(str(path), name, status.st_size, str(status.st_mtime_ns))


def _remote_files(root: str, accept: Callable[[str], bool]) -> list[SourceFile]:
    system, path, chain = _remote(root)

    def url(path: str) -> str:
        # what is chained behind a member ("::file://archive.zip") is needed to open it again
        return str(system.unstrip_protocol(path)) + chain

    try:
        info = system.info(path) if path else {"type": "directory"}
        if not _is_folder(info, root):
            return [_remote_file(info, url(path), path.rstrip("/").rsplit("/", 1)[-1])]
        return [
            _remote_file(info if info.get("size") is not None else system.info(info["name"]), url(info["name"]), below)
            for info, below in _walk(system, path)
            if accept(below)
        ]
    except DataError:
        raise
    except Exception as error:  # each file system raises its own
        raise DataError(f"{root} cannot be listed: {error!r}. Check the address and that it can be reached.") from error


def _remote(root: str) -> tuple[AbstractFileSystem, str, str]:
    """The file system, the path in it, and the rest of a chained URL."""
    from fsspec.core import url_to_fs  # local data does not need it

    try:
        system, path = url_to_fs(root, **_waits(root))
    except DataError:
        raise
    except Exception as error:  # an unknown protocol, a package that is not installed, a missing archive
        raise DataError(f"{root} cannot be opened: {error}. Check the address; install what it needs.") from error
    rest = root.partition("::")[2]
    return system, path, f"::{rest}" if rest else ""


def _waits(root: str) -> dict[str, Any]:
    """Settings of the file systems in a URL: how long a web server may be silent, however long a file takes.

    aiohttp's own limit is five minutes for a whole file, which a shard of a gigabyte may well take.
    """
    protocols = [name for name in ("http", "https") if f"{name}://" in root]
    if not protocols:
        return {}
    from aiohttp import ClientTimeout  # what fsspec reads http with

    seconds = http_timeout()
    settings = {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)}}
    return {name: settings for name in protocols}


def http_timeout() -> float:
    """Seconds without a byte after which a web server counts as gone, from `$SWITCHMEM_HTTP_TIMEOUT`; 60 without it.

    Raises:
        DataError: if the variable holds no positive number.
    """
    text = os.environ.get(TIMEOUT, "") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise DataError(f"`${TIMEOUT}` must be a number of seconds above 0, got {text!r}. Correct it, or unset it.")
    return seconds


def _is_folder(info: dict[str, Any], root: str) -> bool:
    if root.startswith("http"):  # where every address is a file; an index page is a folder
        return root.endswith("/") or str(info.get("mimetype", "")).startswith("text/html")
    return bool(info["type"] == "directory")


def _walk(system: AbstractFileSystem, root: str) -> Iterator[tuple[dict[str, Any], str]]:
    """``(what is known, name below the root)`` of every file below a folder."""
    prefix = root.rstrip("/") + "/" if root.strip("/") else root
    folders, seen = [root], {prefix.rstrip("/")}
    while folders:
        for info in system.ls(folders.pop(), detail=True):
            name = str(info["name"])
            if not name.startswith(prefix) or ".." in unquote(name[len(prefix) :]).split("/"):
                continue  # an index page may link anywhere
            if info["type"] == "directory" and name.rstrip("/") not in seen:
                seen.add(name.rstrip("/"))
                folders.append(name)
            elif info["type"] == "file":
                yield info, name[len(prefix) :].lstrip("/")


def _remote_file(info: dict[str, Any], url: str, name: str) -> SourceFile:
    stamps = (info[key] for key in _STAMPS if info.get(key))
    return SourceFile(url, name, int(info.get("size") or 0), str(next(stamps, "")))


class _Reader(io.RawIOBase):
    """Reads a source's bytes in order, counts them, and tells a failed read from damaged content."""

    def __init__(self, file: Any, source: SourceFile, system: AbstractFileSystem | None) -> None:
        self._file, self._source, self._count = file, source, 0
        self._system = system  # kept, as an archive closes with its file system

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # a disk's OSError, or whatever a network library raises
            raise DataError(
                f"{self._source.url} cannot be read beyond byte {self._count}: {error!r}. Run the same command again: "
                "it goes on with this file."
            ) from error
        if not data and self._count < self._source.size:
            raise DataError(
                f"{self._source.url} must have {self._source.size} bytes, got {self._count}. The connection ended, or "
                "the file has changed since it was listed; run the same command again."
            )
        buffer[: len(data)] = data
        self._count += len(data)
        if data and self._source.on_read is not None:
            self._source.on_read(len(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_source(source: SourceFile) -> BinaryIO:
    """Open a file for reading once, from its start to its end; it cannot be sought.

    Raises:
        DataError: if the file cannot be opened. Reading raises it too where a read fails or the file is shorter than
            it was when it was found; damaged content is the reader's to find.
    """
    system = None
    try:
        if is_url(source.url):
            system, path, _ = _remote(source.url)
            file = system.open(path, "rb")
        else:
            file = open(source.url, "rb", buffering=0)
    except DataError:
        raise
    except Exception as error:  # each file system raises its own
        raise DataError(f"{source.url} cannot be opened: {error!r}. Check that it is still there.") from error
    return cast(BinaryIO, io.BufferedReader(_Reader(file, source, system), BUFFER))
