"""The page's own style and script, from the files beside this one."""

from importlib.resources import files

_HERE = files(__package__)
STYLE = _HERE.joinpath("page.css").read_text(encoding="utf-8")

# one script with names of its own; each file uses those before it
_PARTS = "\n".join(_HERE.joinpath(name).read_text(encoding="utf-8") for name in ("words.js", "step.js", "list.js"))
SCRIPT = f'"use strict";\n(() => {{\n{_PARTS}}})();\n'
