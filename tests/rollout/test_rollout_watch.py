"""What is written while an episode goes on: a page that loads itself again, and a GIF at the end."""

import re
import threading

from PIL import Image

from switchmem.rollout.play import Job, play
from switchmem.rollout.watch import MARK, WIDTH, Watch, caption, draw
from switchmem.steps import Action, ActionType

JOB = Job("text", "both-help", 3)


def test_an_episode_can_be_watched(kit, tmp_path):
    watch = Watch(tmp_path / "watch")
    seen = []

    class Reading:
        def saw(self, *args):
            watch.saw(*args)
            seen.append(watch.page.read_text())

    play(kit.TwoButtons(), JOB, lambda _: kit.tap(kit.RIGHT), watcher=Reading())
    assert [re.search(r"step (\d+): (.*?)</fig", text).groups() for text in seen] == [
        ("1", "none memory; tap"), ("2", "none memory; tap"), ("3", "over"),
    ]  # fmt: skip
    name = threading.current_thread().name
    assert f'src="{name}.png"' in seen[0] and (tmp_path / "watch" / f"{name}.png").is_file()
    assert 'http-equiv="refresh"' in seen[0]
    with Image.open(tmp_path / "watch" / "text-both-help-3.gif") as animation:
        assert animation.n_frames == 3 and animation.info["loop"] == 0
        durations = []
        for n in range(3):
            animation.seek(n)
            durations.append(animation.info["duration"])
        assert durations[0] == durations[1] < durations[2]


def test_a_frame_shows_where_and_whether_something_was_done(kit):
    screen, _ = kit.TwoButtons().reset(seed=1, options={"task": "both-help"})
    tapped = draw(screen, kit.tap(kit.RIGHT))
    height = round(80 * WIDTH / 40)
    assert tapped.size == (WIDTH, height + 18)
    where = [(x, y) for x in range(WIDTH) for y in range(height) if tapped.getpixel((x, y)) == MARK]
    xs, ys = zip(*where, strict=True)
    assert abs(sum(xs) / len(xs) - 0.75 * WIDTH) < 2 and abs(sum(ys) / len(ys) - 0.5 * height) < 2
    assert draw(screen, None).getpixel((0, 0)) != MARK == draw(screen, kit.decision(None)).getpixel((0, 0))


def test_words_of_a_page_are_no_markup(kit, tmp_path):
    watch = Watch(tmp_path)
    screen, _ = kit.TwoButtons().reset(seed=1, options={"task": "both-help"})
    watch.saw(JOB, 0, screen, kit.decision(Action(ActionType.TYPE, text="<script>é\u2028\ud800")))
    text = watch.page.read_text()
    assert "&lt;script&gt;é" in text and "<script>" not in text
    assert caption(kit.decision(None)) == "none memory; no action (empty)"
