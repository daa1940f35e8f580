"""Tasks of mail and posts: an inbox, a feed, a search engine."""

from __future__ import annotations

from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View, first
from switchmem.steps import UIElement

_ICONS = {"Reply": 0, "Retweet": 1, "Like": 2, "Share": 3}  # of a post, from the left
_MORE = 3  # the icon that opens a post's menu
_WHOLE = 10  # CSS pixels that an icon is high if it is not cut off
_ROW = 45  # CSS pixels from a post's author to its icons


def _icons_at(view: View, y: float, reach: float) -> list[UIElement]:
    """The pictures around a height, from the left; those that a list's edge cuts off are left out."""
    images = [e for e in view.elements if e.kind == "Image" and view.box(e)[3] - view.box(e)[1] > _WHOLE]
    icons = [e for e in images if abs(view.middle(e)[1] - y) < reach]
    return sorted(icons, key=lambda e: view.middle(e)[0])


def mail(view: View) -> Actions:
    """Do with a mail what the instruction asks for in the pages' plain words."""
    (name,) = view.words(r"email by (\S+) and")
    if "reply to them" in view.utterance:
        yield from _reply(view, name, view.quoted[0])
    elif "forward" in view.utterance:
        (to,) = view.words(r"email to (\S+)\.$")
        yield from _forward(view, name, to)
    else:
        yield from _mark(view, name, "trash" in view.utterance)


def mail_in_free_words(view: View) -> Actions:
    """Do what the instruction asks for in somebody's own words.

    Who wrote and who shall be written to cannot be told from all of these sentences: some have the two names swapped
    against what the page expects. So the page is asked.
    """
    wanted = view.query("core.currentFields")
    task = wanted.get("task", "forward")
    if task == "reply":
        yield from _reply(view, wanted["by"], wanted["message"])
    elif task == "forward":
        yield from _forward(view, wanted["by"], wanted["to"])
    else:
        yield from _mark(view, wanted["by"], task == "delete")


def _mark(view: View, name: str, deletes: bool) -> Actions:
    """Tap the star, or the bin beside it, in the list."""
    yield from view.scroll_to(lambda: _thread_icons(view, name), f"a mail by {name}")
    yield view.tap(_thread_icons(view, name)[1 if deletes else 0])


def _thread_icons(view: View, name: str) -> list[UIElement]:
    for sender in view.all(name, "TextView"):
        icons = _icons_at(view, view.middle(sender)[1] + 5, 8)
        if len(icons) == 2:
            return icons
    return []


def _open(view: View, name: str) -> Actions:
    yield from view.scroll_to(lambda: view.all(name, "TextView"), f"a mail by {name}")
    yield view.tap(view.one(name, "TextView"))


def _forward(view: View, name: str, to: str) -> Actions:
    yield from _open(view, name)
    yield from _to_foot(view, "Forward")
    yield from view.enter(first([e for e in view.fields if not e.text], "the field of the receiver"), to)
    yield view.tap(first([e for e in view.elements if e.resource_id == "send-forward"], "the arrow that sends"))


def _reply(view: View, name: str, text: str) -> Actions:
    """Answer a mail. The Enter that follows all text leaves a new line in it, which the pages take for another text."""
    yield from _open(view, name)
    yield from _to_foot(view, "Reply")
    yield from view.enter(view.fields[0], text)
    yield view.tap(first([e for e in view.elements if e.resource_id == "send-reply"], "the arrow that sends"))


def _to_foot(view: View, label: str) -> Actions:
    if not view.all(label):
        yield from view.scroll_to(lambda: view.all(label), label)
    yield view.tap(view.one(label))


def _posts(view: View, user: str) -> list[tuple[str, list[UIElement]]]:
    """The posts of a user whose icons are all in sight: what they say, and the icons from the left."""
    found = []
    elements = view.elements
    for place, element in enumerate(elements):
        icons = _icons_at(view, view.middle(element)[1] + _ROW - 2, 9) if element.text == user else []
        if len(icons) == len(_ICONS):
            words = [e.text for e in elements[place + 1 : place + 4] if e.kind == "TextView" and "ago" not in e.text]
            found.append((words[0] if words else "", icons))
    return found


def post(view: View) -> Actions:
    """Find a user's post and tap one of its icons, or an entry of its menu."""
    user, label = view.words(r'user (\S+), click on the "(.+?)"')
    yield from view.scroll_to(lambda: [icons[0] for _, icons in _posts(view, user)], f"a post by {user}")
    if label in ("Reply", "Retweet", "Like"):
        icon = _posts(view, user)[0][1][_ICONS[label]]
        # Under the first touch the page changes the icon for a picture that is not loaded yet, and the tap goes by it.
        yield view.tap(icon)
        yield view.tap(icon)
        return
    icon = _posts(view, user)[0][1][_MORE]
    entry = f"{label} {user}" if label in ("Mute", "Block") else label
    for _ in range(2):
        yield view.tap(icon)
        if view.all(entry):
            break
    yield from view.scroll_to(lambda: view.all(entry), entry)
    yield view.tap(view.one(entry))


def posts(view: View) -> Actions:
    """Tap an icon on all or some posts of a user, then submit."""
    label, count, user = view.words(r'"(\w+)" button on (all|\d+) posts? by (\S+) and')
    left = 99 if count == "all" else int(count)
    done: set[str] = set()
    before = b""
    while left and view.screen.screenshot.data != before:
        for words in [words for words, _ in _posts(view, user) if words not in done][:left]:
            yield view.tap(dict(_posts(view, user))[words][_ICONS[label]])
            done.add(words)
            left -= 1
        before = view.screen.screenshot.data
        if left:
            yield view.scroll("down", view.scrollable())
    yield from view.scroll_to(lambda: view.all("Submit", "Button"), "Submit")
    yield view.tap(view.button("Submit"))


def search(view: View) -> Actions:
    """Search, go to the page of the result, tap it; each page holds three."""
    (number,) = view.words(r"the (\d+)\w\w search result")
    yield from view.enter(view.fields[0], view.quoted[0])
    yield view.tap(view.button("Search"))
    page, place = divmod(int(number) - 1, 3)
    bar = first([e for e in view.elements if e.resource_id == "pagination"], "the pages")
    if page:
        numbers = [e for e in view.all(str(page + 1)) if bar.contains(e.center)]
        yield view.tap(first(numbers, f"page {page + 1}"))
        bar = first([e for e in view.elements if e.resource_id == "pagination"], "the pages")
    titles = [e for e in view.elements if e.kind == "View" and e.clickable and e.text and not bar.contains(e.center)]
    if len(titles) <= place:
        raise Lost(f"the page must show {place + 1} results, got {len(titles)}.")
    yield view.tap(titles[place])
