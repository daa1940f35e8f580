"""A page read back by Python's own HTML parser, which knows nothing of how it was written."""

import json
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
UNNEEDED = {"html", "head", "body"}


class Page(HTMLParser):
    """Elements of a page as (tag, attributes, text), and the errors of its structure."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.errors, self._open, self.declaration = [], [], [], None
        self.feed(text)
        self.close()
        self.errors += [f"<{tag}> is never closed" for tag, _ in self._open]

    def handle_decl(self, decl):
        self.declaration = decl

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attributes": dict(attrs), "text": "", "inside": [t for t, _ in self._open]}
        if len(dict(attrs)) != len(attrs):
            self.errors.append(f"<{tag}> has an attribute twice")
        self.elements.append(element)
        if tag not in VOID:
            self._open.append((tag, element))

    def handle_startendtag(self, tag, attrs):
        self.errors.append(f"<{tag}/> is not HTML")

    def handle_endtag(self, tag):
        if not self._open or self._open[-1][0] != tag:
            self.errors.append(f"</{tag}> closes {self._open[-1][0] if self._open else 'nothing'}")
        else:
            self._open.pop()

    def handle_comment(self, data):
        self.errors.append(f"a comment: {data[:40]!r}")

    def handle_data(self, data):
        for _, element in self._open:
            element["text"] += data

    def all(self, tag, **wanted):
        """Elements of a tag with these attributes."""
        found = (e for e in self.elements if e["tag"] == tag)
        return [e for e in found if wanted.items() <= e["attributes"].items()]

    def one(self, tag, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    @property
    def data(self):
        return json.loads(self.one("script", id="data")["text"])

    @property
    def visible(self):
        """All text that is neither script nor style."""
        inert = sum(len(e["text"]) for e in self.elements if e["tag"] in ("script", "style"))
        whole = self.one("html")["text"]
        for e in self.elements:
            if e["tag"] in ("script", "style") and e["text"]:
                whole = whole.replace(e["text"], "", 1)
        assert len(whole) == len(self.one("html")["text"]) - inert
        return whole
