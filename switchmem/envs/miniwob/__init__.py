"""MobileMiniWoB++ in headless Chromium. Importing this starts no browser; `miniwob.env` holds the environment."""

from switchmem.envs.miniwob.tasks import TASKS, available, instance_seed

__all__ = ["TASKS", "available", "instance_seed"]
