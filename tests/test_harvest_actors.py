"""Who answered in a harvest and what it cost, over several processes."""

from switchmem.harvest import note_actor, note_usage, read_actors, read_usage


def test_each_actor_is_kept_once_in_the_order_of_their_work(tmp_path):
    assert read_actors(tmp_path) == []
    for device in ("cuda:0", "cpu", "cuda:0"):
        note_actor(tmp_path, {"class": "A", "device": device, "pixels": (1, 2)})
    assert [facts["device"] for facts in read_actors(tmp_path)] == ["cuda:0", "cpu"]
    assert read_actors(tmp_path)[0]["pixels"] == [1, 2]


def test_usage_is_the_sum_over_processes(tmp_path):
    assert read_usage(tmp_path) == {}
    note_usage(tmp_path, {"answers": 2, "cost": None, "models": {"a": 2}})
    assert read_usage(tmp_path) == {"answers": 2, "cost": None, "models": {"a": 2}}
    note_usage(tmp_path, {"answers": 3, "cost": 0.5, "models": {"a": 1, "b": 2}})
    note_usage(tmp_path, {"answers": 0, "cost": None, "models": {}})
    assert read_usage(tmp_path) == {"answers": 5, "cost": 0.5, "models": {"a": 3, "b": 2}}
