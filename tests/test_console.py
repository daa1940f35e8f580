"""Progress where nobody watches: lines with an estimate, and none too many."""

import pytest

from switchmem import console


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_a_line_now_and_then_with_the_time_left(clock, capsys):
    with console.progress("convert", seconds=10.0) as advance:
        for second in range(1, 31):
            clock[0] = 100.0 + second
            advance(second, 60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0] == "convert: 17 % after 10 s, about 56 s left"


def test_work_of_an_earlier_run_is_no_speed_of_this_one(clock, capsys):
    with console.progress("convert", seconds=5.0) as advance:
        advance(50, 100)
        clock[0] += 10
        advance(60, 100)
    assert capsys.readouterr().out == "convert: 60 % after 10 s, about 40 s left\n"


def test_the_first_process_of_a_further_machine_is_not_the_first_rank(monkeypatch):
    """Lightning takes it for rank 0 until there is a Trainer, since only NODE_RANK is set for it."""
    assert console.is_first_rank()
    monkeypatch.setenv("NODE_RANK", "0")
    assert console.is_first_rank()
    monkeypatch.setenv("NODE_RANK", "1")
    assert not console.is_first_rank()
