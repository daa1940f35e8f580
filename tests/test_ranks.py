"""Ranks that meet, wait for each other and part; what they do when one dies is tested where harvests are killed."""

import contextlib
import queue
import socket
import threading
import time

import pytest

from switchmem import ranks as module
from switchmem.ranks import Ranks, RanksError


class Group:
    """A rank of a process group of threads."""

    def __init__(self, rank, world, wires):
        self.global_rank, self.world_size, self.wires, self.strategy = rank, world, wires, self
        self.cluster_environment = self
        self.main_address = "127.0.0.1"

    def broadcast(self, value):
        if self.global_rank == 0:
            for wire in self.wires[1:]:
                wire.put(value)
            return value
        return self.wires[self.global_rank].get(timeout=20)


def together(world, act, titles=None):
    """``act(group, title)`` on a thread per rank; the results or errors by rank."""
    wires = [queue.Queue() for _ in range(world)]
    results = [None] * world

    def run(rank):
        try:
            results[rank] = act(Group(rank, world, wires), (titles or ["pass"] * world)[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def keep():
    raise AssertionError("nothing has to be kept")


@pytest.mark.parametrize("world", [2, 5])
def test_nobody_passes_a_point_before_all_have_come(world):
    arrived = []

    def act(group, title):
        ranks = Ranks.join(group, title, keep)
        for point in ("one", "two"):
            time.sleep(0.05 * group.global_rank)
            arrived.append(point)
            ranks.wait(point)
            assert arrived.count(point) == world
        ranks.leave()
        ranks.leave()
        ranks.fail("has left before")
        ranks._thread.join(10)
        return not ranks._thread.is_alive()

    assert together(world, act) == [True] * world


def test_a_single_rank_opens_no_port(monkeypatch):
    monkeypatch.setattr(socket, "create_server", None)
    ranks = Ranks.join(Group(0, 1, []), "pass", keep)
    ranks.wait("one")
    ranks.fail("stops")
    ranks.leave()


def test_ranks_at_different_passes_are_told_so(monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    first, second = together(2, lambda group, title: Ranks.join(group, title, keep), ["embedding", "harvest of test"])
    assert isinstance(second, RanksError) and "rank 0 at 'embedding' and rank 1 at 'harvest of test'" in str(second)
    assert isinstance(first, RanksError) and "got nothing from [1]" in str(first)


def heard(link):
    try:
        return link.recv(10)
    except ConnectionError:
        return b""


def test_strangers_are_not_taken_for_ranks():
    spoke = []

    def act(group, title):
        if group.global_rank == 1:
            connect = Ranks._connect

            def after_strangers(self, address, port, token):
                for line in (b"GET / HTTP/1.1\r\n\r\n", b'{"rank": 1, "token": "guess"}\n', b"[]\n", b""):
                    with contextlib.closing(socket.create_connection((address, port))) as stranger:
                        stranger.sendall(line)
                        with contextlib.suppress(OSError):  # it may have been closed already
                            stranger.shutdown(socket.SHUT_WR)
                        with contextlib.suppress(ConnectionError):
                            spoke.append(stranger.recv(10))
                connect(self, address, port, token)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Ranks, "_connect", after_strangers)
                ranks = Ranks.join(group, title, keep)
        else:
            ranks = Ranks.join(group, title, keep)
        ranks.wait("one")
        ranks.leave()
        return True

    assert together(2, act) == [True, True]
    assert not any(spoke)


def test_a_first_rank_that_cannot_be_reached_is_named():
    ranks = Ranks(1, 2, keep)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RanksError, match=f"rank 1 must reach rank 0 at 127.0.0.1, port {port}, got: .*refused"):
        ranks._connect("127.0.0.1", port, "token")
