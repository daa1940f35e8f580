"""Results as figures and as one self-contained HTML page; computes nothing.

Figures are drawn as SVG by a few functions here, and by no plotting library: their colours are those of the page's
style, so that light and dark need one drawing, their words are text that can be selected, and a page costs no other
dependency.
"""

from switchmem.report.browser import Browser, Demo, Picture, Router, ShownStep
from switchmem.report.figures import Figure, all_figures, as_file, standalone
from switchmem.report.page import Audit, render
from switchmem.report.pictures import embed, shrunk

__all__ = [
    "Audit",
    "Browser",
    "Demo",
    "Figure",
    "Picture",
    "Router",
    "ShownStep",
    "all_figures",
    "as_file",
    "embed",
    "render",
    "shrunk",
    "standalone",
]
