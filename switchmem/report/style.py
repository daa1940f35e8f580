"""The page's own style and script, from the files beside this one."""

from importlib.resources import files

STYLE = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
SCRIPT = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
