"""The ranks of one pass: each hears at once when another ends, and they wait for each other as long as it takes.

Collectives do neither. A rank that waits in one for a killed rank hangs until the process group's timeout, and a rank
whose steps were merely the quicker ones is ended by that same timeout while the others still work. Here every rank
keeps a connection to the first one. The operating system closes it when a process dies, however it dies.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

CONNECT_SECONDS = 120.0
"""How long ranks look for each other, once all of them are in the process group."""
GRACE_SECONDS = 3.0
"""How long a rank that hears of another's error may take to tell its own: often all of them have the same."""
KEEP_SECONDS = 60.0
"""How long a rank that ends may take to write what it has finished; a disk may hang."""
LAUNCHER = "SWITCHMEM_LAUNCHER"
"""Environment variable: process id of the command that launched this one as a further rank."""

LOST = "has ended without a word: killed, out of memory, or its machine is lost"

_ending = threading.Lock()  # taken by the thread that ends the process, and never given back


class RanksError(RuntimeError):
    """The ranks of a pass cannot find each other, or do not do the same."""


class Group(Protocol):
    """What is asked of a Trainer."""

    @property
    def global_rank(self) -> int:
        """This process, from 0."""

    @property
    def world_size(self) -> int:
        """Number of processes."""

    @property
    def strategy(self) -> Any:
        """Has `broadcast`, and a `cluster_environment` that knows the first rank's address."""


class Ranks:
    """This rank among the others of a pass; with a single rank, everything here does nothing.

    When another rank is lost or fails, this process ends too, from a thread: the main one may be inside a collective
    or a long batch. Before that it writes what it has finished.

    Args:
        rank, world: this process and their number.
        keep: writes what is finished; called from another thread, at any moment.
    """

    def __init__(self, rank: int, world: int, keep: Callable[[], None]) -> None:
        self.rank, self.world, self._keep = rank, world, keep
        self._links: dict[int, socket.socket] = {}
        self._changed = threading.Condition()
        self._arrived: defaultdict[str, set[int]] = defaultdict(set)
        self._open: set[str] = set()
        self._left = self._told = False
        self._thread = threading.Thread(target=self._listen, name="ranks", daemon=True)

    @classmethod
    def join(cls, group: Group, title: str, keep: Callable[[], None]) -> Ranks:
        """Meet the other ranks; all of them call this at the same point.

        Args:
            group: the Trainer, whose process group stands.
            title: of the pass, the same on all ranks.
            keep: see the class.

        Raises:
            RanksError: if a rank cannot be reached, or is at another pass.
        """
        ranks = cls(group.global_rank, group.world_size, keep)
        if ranks.world == 1:
            return ranks
        first = ranks.rank == 0
        server = _serve(ranks.world) if first else None
        invitation = (server.getsockname()[1], secrets.token_hex(16), title) if server else None
        port, token, theirs = group.strategy.broadcast(invitation)
        if theirs != title:
            raise RanksError(
                f"all ranks must do the same, got rank 0 at {theirs!r} and rank {ranks.rank} at {title!r}: another "
                "command has finished a stage just now. Run the same command again."
            )
        if server is not None:
            with server:
                ranks._accept(server, token)
        else:
            ranks._connect(group.strategy.cluster_environment.main_address, port, token)
        ranks._thread.start()
        return ranks

    def wait(self, name: str) -> None:
        """Return when all ranks have come here, however long that takes.

        Args:
            name: of this point, used once in a pass.
        """
        if self.world == 1:
            return
        if self.rank == 0:
            self._arrive(0, name)
        else:
            self._send(0, {"at": name})
        with self._changed:
            self._changed.wait_for(lambda: name in self._open)

    def fail(self, reason: str, status: int = 1) -> None:
        """Tell the other ranks that this one stops, and leave. They end with `status`.

        Args:
            reason: "stops: ..." or the like; follows the rank's number in a sentence.
            status: exit status, 1 to 255.
        """
        if self.world == 1 or self._left:
            return
        with self._changed:
            # The error may be no more than an echo of a lost rank, in a collective: then that is what should be told.
            if self._changed.wait_for(lambda: self._told, timeout=0.5):
                self._changed.wait_for(lambda: False)  # for ever: the other thread ends the process
        self._part({"failed": self.rank, "reason": reason, "status": status})

    def leave(self) -> None:
        """Go on without the others; after a `wait`, so that nobody still counts on this rank."""
        if self.world > 1 and not self._left:
            self._part({"bye": self.rank})

    # --- meeting ---

    def _accept(self, server: socket.socket, token: str) -> None:
        deadline = time.monotonic() + CONNECT_SECONDS
        while len(self._links) < self.world - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                link, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, self.world)) - set(self._links))
                raise RanksError(
                    f"all {self.world} ranks must reach rank 0 within {CONNECT_SECONDS:.0f} s, got nothing from "
                    f"{missing}. Look at their own output, and let the nodes connect to each other on any port."
                ) from None
            rank = _hello(link, token)
            if rank is None:
                link.close()
            else:
                self._links[rank] = _lively(link)

    def _connect(self, address: str, port: int, token: str) -> None:
        try:
            link = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
            link.sendall(_line({"rank": self.rank, "token": token}))
        except OSError as error:
            raise RanksError(
                f"rank {self.rank} must reach rank 0 at {address}, port {port}, got: {error}. Let the nodes connect to "
                "each other on any port."
            ) from error
        self._links[0] = _lively(link)

    # --- talking ---

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, (rank, bytearray()))
            while selector.get_map():
                for key, _ in selector.select():
                    link, (rank, heard) = self._links[key.data[0]], key.data
                    try:
                        data = link.recv(1 << 16)
                    except OSError:
                        data = b""
                    heard += data
                    *lines, heard[:] = heard.split(b"\n")
                    parted = [self._hear(rank, json.loads(line)) for line in lines]
                    if any(parted) or not data:
                        selector.unregister(link)
                        if not any(parted):
                            self._end(rank, LOST, 1)

    def _hear(self, rank: int, message: dict[str, Any]) -> bool:
        """Act on a message; True if it was the rank's last."""
        if "at" in message:
            self._arrive(rank, message["at"])
        elif "go" in message:
            with self._changed:
                self._open.add(message["go"])
                self._changed.notify_all()
        elif "failed" in message:
            self._end(message["failed"], message["reason"], message["status"])
            return True
        return "bye" in message

    def _arrive(self, rank: int, name: str) -> None:
        with self._changed:
            self._arrived[name].add(rank)
            if len(self._arrived[name]) < self.world:
                return
        for other in self._links:  # before this rank goes on itself, and may leave
            self._send(other, {"go": name})
        with self._changed:
            self._open.add(name)
            self._changed.notify_all()

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        try:
            self._links[rank].sendall(_line(message))
        except OSError:
            return  # it is gone; whoever listens to it hears that, and ends this process if it matters

    def _part(self, message: dict[str, Any]) -> None:
        with self._changed:
            self._left = True
            self._changed.notify_all()
        for rank, link in self._links.items():
            self._send(rank, message)
            try:
                link.shutdown(socket.SHUT_WR)  # what the others still say is read until they part too
            except OSError:
                continue

    # --- ending ---

    def _end(self, rank: int, reason: str, status: int) -> None:
        """Pass on that a rank is gone, and end this process, unless it has left the pass already."""
        for other in self._links if self.rank == 0 else ():
            if other != rank:
                self._send(other, {"failed": rank, "reason": reason, "status": status})
        with self._changed:
            if reason != LOST and self._changed.wait_for(lambda: self._left, timeout=GRACE_SECONDS):
                return
            if self._left:
                return
            self._told = True
            self._changed.notify_all()
        end_process(f"rank {rank} of {self.world} {reason}. Rank {self.rank} ends too.", status, self._keep)


def end_process(text: str, status: int, keep: Callable[[], None] | None = None) -> None:
    """Write what is finished, say why, and end this process from any of its threads.

    Args:
        text: what happened.
        status: exit status, 1 to 255.
        keep: writes what is finished.
    """
    _ending.acquire()
    lines = [f"error: {text} What was finished is kept; the same command goes on from there."]

    def write() -> None:
        try:
            if keep is not None:
                keep()
        except Exception as error:  # whatever it is, the process must end, and somebody should know
            lines.append(f"error: the last finished steps could not be written: {error}")

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(KEEP_SECONDS)
    sys.stdout.flush()
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
    os._exit(status)


def end_with_launcher() -> None:
    """End this process with the one that launched it as a further rank, if one did.

    Lightning ends the other ranks when one of those that it launched dies, but nobody ends them when the launching
    process itself is killed. `mark_launcher` comes first, in that process.
    """
    launcher, further = os.environ.get(LAUNCHER), os.environ.get("LOCAL_RANK", "0") != "0"
    if further and launcher not in (None, str(os.getpid())):  # its own id: torchrun or the like started it
        threading.Thread(target=_watch, args=(int(str(launcher)),), name="launcher", daemon=True).start()


def mark_launcher() -> None:
    """Let the ranks that this process launches know it, see `end_with_launcher`."""
    os.environ.setdefault(LAUNCHER, str(os.getpid()))


def forget_launcher() -> None:
    """Undo `mark_launcher`."""
    if os.environ.get(LAUNCHER) == str(os.getpid()):
        del os.environ[LAUNCHER]


def _watch(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(0.5)
    time.sleep(GRACE_SECONDS)  # where ranks have met, they know, and write what is finished first
    end_process("the process that launched this rank has ended.", 1)


# --- sockets ---


def _serve(world: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=world, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=world)


def _hello(link: socket.socket, token: str) -> int | None:
    """The rank that a new connection belongs to; None for a stranger's."""
    link.settimeout(10.0)
    heard = b""
    try:
        while not heard.endswith(b"\n") and len(heard) < 1000:
            data = link.recv(1)  # one by one: what follows the line is for `_listen`
            if not data:
                return None
            heard += data
        said = json.loads(heard)
        known = secrets.compare_digest(str(said["token"]), token)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return int(said["rank"]) if known else None


def _lively(link: socket.socket) -> socket.socket:
    """Let the operating system notice within half a minute when the other machine is lost."""
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):  # not all systems have all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return link


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"
