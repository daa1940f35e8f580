"""A small release of LearnGUI in the published layout, drawn by the tests; every quirk can be put into it."""

import json

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 120, 240
ACTIONS = ["CLICK[60,120]", "SWIPE[UP]", "TYPE[New York]", "PRESS_BACK", "TASK_COMPLETE[]"]
QUERIES, SUPPORTS, ONLINE = ("q0", "q1", "q2"), ("s0", "s1", "s2", "s3"), ("o0", "o1", "o2", "o3")


def annotation(number=0, **changes):
    """An element annotation as AMEX has them."""
    values = {
        "image_path": "ignored.png",
        "page_caption": f"Page {number}",
        "clickable_elements": [
            {"bbox": [10, 20, 60, 40], "xml_desc": ["Wi-Fi", "Wi-Fi", ""], "functionality": "Opens Wi-Fi"},
            {"bbox": [10, 50, 60, 70], "xml_desc": []},
        ],
        "scrollable_elements": [{"bbox": [0, 80, 120, 200], "xml_desc": ["List"]}],
    }
    return {**values, **changes}


def task(query, supports, k_shot=1, split="test", **changes):
    """An entry of task_split.json."""
    support = [
        {"episode": {"episode_id": s}, "similarity": 0.9, "ui_similarity": 0.8, "action_similarity": 0.7}
        for s in supports
    ]
    values = {"app": "Booking", "split": split, "k_shot": k_shot, "query": {"episode_id": query, "goal": "go"}}
    return {**values, "support": support, **changes}


class Release:
    """A folder that is filled by `write`, with everything in it that is in `episodes`, `tasks` and `online`."""

    def __init__(self, root):
        self.root = root
        self.offline, self.online_folder = root / "offline", root / "online"
        self.screens = self.offline / "screenshot"
        self.anno = self.offline / "element_anno"
        self.raw = self.online_folder / "raw_data"
        self.split_name = "task_split.json"
        self.episodes = {name: self.episode(name) for name in (*QUERIES, *SUPPORTS)}
        self.online = {name: self.episode(name, shots=f"{name}/") for name in ONLINE}
        listed = {"q0": ("s0", "s1", "s2"), "q1": ("s1", "s2", "s3"), "q2": ("s2", "s0", "s1")}
        self.tasks = [task(q, supports, k) for q, supports in listed.items() for k in (1, 2, 3)]
        self.tasks += [task("s3", ("s0",), split="train")]

    @staticmethod
    def episode(name, actions=ACTIONS, shots=""):
        steps = [
            {"step_id": n + 1, "image_path": f"{shots}{name}_{n}.png", "action": a, "action_description": f"Do {a[:5]}"}
            for n, a in enumerate(actions)
        ]
        return {"instruction": f"Do the thing {name}", "app": f"App {name[0]}", "domain": "travel", "steps": steps}

    def picture(self, path, number=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (WIDTH, HEIGHT), (20 * number % 255, 90, 160))
        ImageDraw.Draw(image).rectangle((10, 20, 60, 40 + number), fill=(250, 250, 250))
        image.save(path)

    def write(self):
        """Write everything, with pictures and annotations where nothing lies yet."""
        write(self.offline / self.split_name, self.tasks)
        write(self.offline / "low_level_instructions.json", self.episodes)
        for name, episode in self.online.items():
            write(self.online_folder / "low_level_instructions" / f"{name}.json", episode)
        for folder, episodes in ((self.screens, self.episodes), (self.raw, self.online)):
            for episode in episodes.values():
                for number, step in enumerate(episode["steps"]):
                    self.picture(folder / step["image_path"], number)
                    if folder is self.screens:
                        stem = (folder / step["image_path"]).stem
                        write(self.anno / f"{stem}.json", annotation(number))
        return self


def write(path, value):
    """Write a JSON value, or bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
