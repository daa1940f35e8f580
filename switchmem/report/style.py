"""The page's own style and script, from the files beside this one."""

import re
from importlib.resources import files

_HERE = files(__package__)


def _read(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


_MARKS = _read("figure.css")
STYLE = _read("page.css") + _MARKS

# one script with names of its own; each file uses those before it
_PARTS = "\n".join(map(_read, ("words.js", "step.js", "list.js")))
SCRIPT = f'"use strict";\n(() => {{\n{_PARTS}}})();\n'

_LIGHT = dict(re.findall(r"(--\w+): light-dark\((#\w+), #\w+\);", STYLE))
PLAIN_MARKS = re.sub(r"var\((--\w+)\)", lambda found: _LIGHT[found[1]], _MARKS)
"""The style of figures in files: light, with colours that programs which know no variables can read."""
