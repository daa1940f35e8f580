"""The page in a real browser: nothing is requested, nothing hostile runs, keys and filters work, at any width."""

import re
import time

import pytest
from playwright.sync_api import expect
from report_sample import CONDITIONS, browser_of, matrix_of, picture, results_of, step_of, tap

from switchmem.report import Browser, Demo, render

pytestmark = pytest.mark.browser

N = 80
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\u2028<svg onload=alert(3)>"


class Sheet:
    """A page opened from a file, with everything that it must not do noted.

    Attributes:
        wrong: requests, dialogs, errors and violations.
    """

    def __init__(self, chromium, file, **options):
        self.context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page, self.wrong = self.context.new_page(), []
        self.page.route("**/*", self._route)
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.address = file.as_uri()
        self.page.goto(self.address)

    def _route(self, route):
        address = route.request.url
        if address == self.address or address.startswith("data:"):
            route.continue_()
        else:
            self.wrong.append(f"request {address}")
            route.abort()

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    @property
    def step(self):
        """Id of the step that is shown."""
        return self.text("#detail .meta code")

    @property
    def shown(self):
        """How many steps pass the filters, as the page counts them."""
        return int(self.text("#count").partition(" of ")[0].replace(",", ""))

    def becomes(self, count):
        """Wait until so many steps are shown."""
        # not `wait_for_function`, which the page's policy forbids as it would any other `eval`
        expect(self.page.locator("#count")).to_have_text(re.compile(f"^{count:,} of "))

    def choose(self, name, value):
        self.page.select_option(f"#filter-{name}", value)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def overflow(self):
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.fixture(scope="module")
def sample():
    return browser_of(N)


@pytest.fixture(scope="module")
def file(tmp_path_factory, sample):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(results_of(N), sample), encoding="utf-8")
    return path


@pytest.fixture
def opened(chromium):
    """Opens pages, and asserts at the end that they did nothing wrong."""
    sheets = []

    def open_page(file, **options):
        sheets.append(Sheet(chromium, file, **options))
        return sheets[-1]

    yield open_page
    for sheet in sheets:
        wrong = list(sheet.wrong)
        sheet.context.close()
        assert wrong == []


@pytest.fixture
def sheet(opened, file):
    return opened(file)


def test_the_page_opens_and_asks_for_nothing(sheet, sample):
    assert sheet.page.title() == "switchmem: sample"
    assert sheet.shown == N and sheet.step == sample.steps[0].step_id
    loaded = sheet.page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert not [name for name in loaded if not name.startswith("data:")]
    # the style is applied: under a wrong hash the page would stand there without it
    assert sheet.page.evaluate("getComputedStyle(document.querySelector('.browser')).display") == "grid"


def test_the_policy_stops_what_would_be_asked_for(chromium, file):
    """The check itself: a page that wants to reach out is caught by the policy before any request is made."""
    sheet = Sheet(chromium, file)
    sheet.page.evaluate("const i = new Image(); i.src = 'https://example.org/x.png'; document.body.append(i)")
    sheet.page.evaluate("fetch('https://example.org/y').catch(() => 0)")
    sheet.page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked=1'; document.body.append(s)"
    )
    sheet.page.wait_for_timeout(200)
    told = [w for w in sheet.wrong if "Content Security Policy" in w]
    for what in ("x.png", "Connecting to", "inline script"):
        assert sum(what in w for w in told) == 1, told
    assert not [w for w in sheet.wrong if w.startswith("request")]
    assert sheet.page.evaluate("window.hacked") is None
    sheet.context.close()


def test_a_step_shows_its_pictures_actions_and_scores(sheet, sample):
    page, step = sheet.page, sample.steps[0]
    decoded = "image => image.decode().then(() => image.naturalWidth)"
    assert page.evaluate(f"Promise.all([...document.querySelectorAll('#detail img')].map({decoded}))") == [120, 120]
    marks = page.locator(".panel >> nth=0").locator("[data-mark]")
    wanted = ["gold"] + [c for c in CONDITIONS if step.actions[c]]
    assert [marks.nth(k).get_attribute("data-mark") for k in range(marks.count())] == wanted
    ring = page.locator("[data-mark=gold] circle.over").first
    box, screen = ring.bounding_box(), page.locator("#detail .screen img").first.bounding_box()
    centre = (
        (box["x"] + box["width"] / 2 - screen["x"]) / screen["width"],
        (box["y"] + box["height"] / 2 - screen["y"]) / screen["height"],
    )
    assert centre == pytest.approx(step.gold["point"], abs=0.02)
    rows = page.locator("#detail .answers tbody tr")
    assert rows.count() == 4
    for k, condition in enumerate(CONDITIONS):
        cells = rows.nth(k).locator("th, td").all_inner_texts()
        assert float(cells[1]) == step.scores[condition] and cells[3] == step.answers[condition]
        assert cells[2] == ("tap (30 %, 40 %)" if step.actions[condition] else "unparsable: no_action")
    assert "(chosen)" in rows.nth(2 if step.choice == "image" else 1).inner_text()
    assert sheet.text("#detail pre") == sample.demos[step.memory_id].text
    verdict = page.locator("#detail svg.router").get_attribute("aria-label")
    assert f"tau = 0.250: {step.choice.capitalize()}" in verdict and "t = " in verdict


def test_swipes_are_arrows_and_typed_text_is_told(sheet, sample):
    assert sample.steps[1].gold["type"] == "swipe" and sample.steps[2].gold["type"] == "type"
    sheet.press("j")
    assert sheet.page.locator(".panel >> nth=0").locator("[data-mark=gold] path").count() == 2
    assert "swipe (50 %, 80 %) → (50 %, 20 %)" in sheet.text("#detail .panel")
    sheet.press("j")
    assert "“two  words”" in sheet.page.locator("#detail .panel").first.text_content()
    assert sheet.page.locator(".panel >> nth=0").locator("[data-mark=gold]").count() == 0


def test_marks_can_be_left_out(sheet):
    assert sheet.page.locator("[data-mark=both]").count() == 1
    sheet.page.locator("[data-show=both]").uncheck()
    assert sheet.page.locator("[data-mark=both]").count() == 0
    assert sheet.page.evaluate("document.activeElement.dataset.show") == "both"
    sheet.press("j")
    assert sheet.page.locator("[data-mark=both]").count() == 0
    assert not sheet.page.locator("[data-show=both]").is_checked()


def test_keys_walk_through_the_steps(sheet, sample):
    ids = [step.step_id for step in sample.steps]
    sheet.press("j", "j", "j", "k")
    assert sheet.step == ids[2]
    sheet.page.locator("#list").focus()
    sheet.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert sheet.step == ids[3]
    sheet.press("End")
    assert sheet.step == ids[-1]
    sheet.press("j")
    assert sheet.step == ids[-1]
    active = sheet.page.locator("#list").get_attribute("aria-activedescendant")
    assert sheet.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    assert sheet.page.locator("[aria-selected=true]").count() == 1
    sheet.press("PageUp")
    assert N - 30 < ids.index(sheet.step) < N - 3
    sheet.press("Home", "k")
    assert sheet.step == ids[0]


def test_the_search_and_the_help_have_keys(sheet, sample):
    sheet.press("/")
    assert sheet.page.evaluate("document.activeElement.id") == "search"
    sheet.page.keyboard.type("task 17 jk?")  # in the search these are letters
    assert sheet.page.input_value("#search") == "task 17 jk?" and not sheet.page.locator("#help").is_visible()
    sheet.page.fill("#search", "TASK 17 sample")
    sheet.becomes(5)  # task 17, and the four steps of trajectory 0017
    assert sheet.step == "sample/0004/1"
    sheet.press("Escape")
    assert sheet.page.evaluate("document.activeElement.id") == "list"
    sheet.press("?")
    assert sheet.page.locator("#help").is_visible() and "next step" in sheet.text("#help")
    before = sheet.step
    sheet.press("j")
    assert sheet.step == before
    sheet.press("Escape")
    assert not sheet.page.locator("#help").is_visible()
    sheet.page.click("#open-help")
    sheet.page.click("#close-help")
    assert not sheet.page.locator("#help").is_visible()


def differing(step):
    return step.scores["text"] != step.scores["image"]


def wrong(step):
    return step.scores[step.choice] < step.scores["image" if step.choice == "text" else "text"]


RULES = {
    ("agreement", "differ"): differing,
    ("agreement", "tied"): lambda step: not differing(step),
    ("agreement", "image"): lambda step: step.scores["image"] > step.scores["text"],
    ("agreement", "text"): lambda step: step.scores["image"] < step.scores["text"],
    ("choice", "wrong"): wrong,
    ("choice", "right"): lambda step: differing(step) and not wrong(step),
    ("choice", "image"): lambda step: step.choice == "image",
    ("group", "dense"): lambda step: "dense" in step.groups,
    ("category", "maps"): lambda step: step.category == "maps",
    ("type", "swipe"): lambda step: step.action_type == "swipe",
}


def test_a_filter_leaves_what_it_should(sheet, sample):
    for (name, value), rule in RULES.items():
        wanted = [step.step_id for step in sample.steps if rule(step)]
        assert 0 < len(wanted) < N, (name, value)
        sheet.choose(name, value)
        assert sheet.shown == len(wanted), (name, value)
        sheet.page.locator("#list").focus()
        sheet.press("Home")
        seen = []
        for _ in wanted[:8]:
            seen.append(sheet.step)
            sheet.press("j")
        sheet.press("End")
        last = sheet.step
        assert [*seen, last] == [*wanted[:8], wanted[-1]], (name, value)
        sheet.page.click("#clear")
        sheet.becomes(N)
        assert sheet.step == last  # the step that was looked at stays


def test_filters_work_together_and_may_leave_nothing(sheet, sample):
    sheet.choose("agreement", "differ")
    sheet.choose("group", "dense")
    sheet.page.check("#unparsable")
    wanted = [s for s in sample.steps if differing(s) and "dense" in s.groups and s.actions["none"] is None]
    assert sheet.shown == len(wanted) > 0
    sheet.page.fill("#search", "no such words anywhere")
    sheet.becomes(0)
    assert "No step passes" in sheet.text("#detail")
    sheet.page.locator("#list").focus()
    sheet.press("j", "k", "ArrowDown", "End", "Home")
    assert sheet.page.locator(".row").count() == 0


def test_a_search_looks_everywhere(sheet, sample):
    everything = {
        step.step_id: f"{step} {sample.demos[step.memory_id]}".lower() for step in sample.steps
    }  # every field that is searched, and more; the words below stand in none of those more
    for words in ("REMEMBERED", "both 17", "sample/0007/2", "maps", "thing", "two  words", "“two"):
        wanted = [i for i, text in everything.items() if all(w in text for w in words.lower().strip("“").split())]
        assert wanted
        sheet.page.fill("#search", words)
        sheet.becomes(len(wanted))


def test_hostile_texts_run_nothing_and_are_shown_as_they_are(opened, tmp_path):
    matrix, side = matrix_of(8)
    changes = {
        "instruction": HOSTILE,
        "category": HOSTILE,
        "action_type": HOSTILE,
        "groups": (HOSTILE,),
        "memory_id": HOSTILE,
        "answers": dict.fromkeys(CONDITIONS, HOSTILE),
        "reasons": dict.fromkeys(CONDITIONS, HOSTILE),
        "gold": {**tap(), "type": "type", "point": None, "text": HOSTILE},
    }
    steps = [step_of(k, matrix, side, **changes) for k in range(8)]
    demos = {HOSTILE: Demo(HOSTILE, HOSTILE, {**tap(), "text": HOSTILE}, HOSTILE)}
    results = results_of(
        8, notes=[HOSTILE], provenance={"git": HOSTILE, "actor": {HOSTILE: HOSTILE}}, benchmark=HOSTILE
    )
    browser = Browser(steps, demos, browser_of(8).routers, {HOSTILE: picture()}, [HOSTILE])
    file = tmp_path / "hostile.html"
    file.write_text(render(results, browser), encoding="utf-8")
    sheet = opened(file)
    sheet.press("j", "j", "?", "Escape")
    sheet.page.fill("#search", "</script>")
    sheet.choose("group", HOSTILE)
    sheet.page.wait_for_timeout(300)
    assert sheet.page.evaluate("window.hacked") is None and sheet.shown == 8
    assert sheet.page.locator("#detail h3").text_content() == HOSTILE
    assert sheet.page.locator("#detail pre").text_content() == HOSTILE
    assert sheet.page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    assert sheet.page.evaluate("document.querySelectorAll('img').length") == 1  # the demonstration's own
    assert sheet.overflow() <= 0


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_no_width_scrolls_sideways(opened, file, width):
    sheet = opened(file, viewport={"width": width, "height": 844}, device_scale_factor=2, has_touch=width < 500)
    assert sheet.overflow() <= 0
    sheet.press("j")
    for section in ("#results", "#figures", "#filters", "#detail", "#details"):
        box = sheet.page.locator(section).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width + 0.5
    if width < 500:
        row, detail = (sheet.page.locator(s).bounding_box() for s in ("#list", "#detail"))
        assert detail["y"] >= row["y"] + row["height"]  # under each other
        sheet.page.locator("details summary").last.click()
        assert sheet.overflow() <= 0


def luminance(colour):
    channels = [float(c) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRASTS = """() => [...document.querySelectorAll(
  'p, td, th, li, h2, h3, h4, a, button, label, dt, dd, figcaption, .what, .id, .chip, code, pre, svg.figure text')]
  .filter(e => e.textContent.trim() && e.getClientRects().length)
  .map(e => {
    let ground = e;
    while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
    const style = getComputedStyle(e);
    const ink = e.closest('svg') ? style.fill : style.color;
    return [ink, getComputedStyle(ground).backgroundColor, e.textContent.slice(0, 40)];
  })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_light_and_in_dark(opened, file, scheme):
    sheet = opened(file, color_scheme=scheme)
    ground = sheet.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) > 0.5) == (scheme == "light")
    found = sheet.page.evaluate(CONTRASTS)
    assert len(found) > 200
    for ink, paper, text in found:
        light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ink, paper)


def test_the_theme_can_be_chosen(opened, file):
    sheet = opened(file, color_scheme="light")
    grounds = []
    for label in ("Theme: light", "Theme: dark", "Theme: system"):
        sheet.page.click("#theme")
        assert sheet.page.locator("#theme").get_attribute("aria-label") == label
        grounds.append(luminance(sheet.page.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.5)
    assert grounds == [True, False, True]


def test_the_focus_goes_through_the_page_in_order(sheet):
    order = []
    for _ in range(60):
        sheet.press("Tab")
        order.append(
            sheet.page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
        if order[-1] == "list":
            break
    assert order[0] == "skip"
    wanted = ["theme", "open-help", "search", "filter-agreement", "filter-choice", "filter-group", "clear", "list"]
    assert [name for name in order if name in wanted] == wanted


def test_five_thousand_steps_do_not_stall(opened, tmp_path):
    matrix, side = matrix_of(5000)
    memory = "a line of a remembered screen, with some words in it\n" * 40
    demos = {f"sample/demo/{k}": Demo(f"sample/demo/{k}", "Do it", tap(), f"{memory}{k}") for k in range(1000)}
    steps = [step_of(k, matrix, side, memory_id=f"sample/demo/{k % 1000}") for k in range(5000)]
    shot = picture()
    browser = Browser(steps, demos, browser_of(4).routers, dict.fromkeys([s.step_id for s in steps], shot))
    file = tmp_path / "large.html"
    file.write_text(render(results_of(5000), browser), encoding="utf-8")

    started = time.monotonic()
    sheet = opened(file)
    assert sheet.shown == 5000
    assert time.monotonic() - started < 20
    assert sheet.page.locator(".row").count() < 60

    frames = sheet.page.evaluate("""async () => {
      const list = document.getElementById('list'), end = list.scrollHeight - list.clientHeight, times = [];
      for (let k = 0; k <= 100; k += 1) {
        const start = performance.now();
        list.scrollTop = end * k / 100;
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(performance.now() - start);
      }
      return times;
    }""")
    assert sorted(frames)[95] < 500, f"95 % of jumps must be painted within half a second, got {sorted(frames)[-10:]}"
    assert sheet.page.locator(".row").count() < 60
    assert sheet.page.locator("#row-4999").is_visible()

    for action in (
        lambda: (sheet.page.locator("#list").focus(), sheet.press("Home", *["j"] * 30)),
        lambda: sheet.choose("agreement", "differ"),
        lambda: (sheet.page.fill("#search", "remembered"), sheet.page.wait_for_timeout(200)),
    ):
        started = time.monotonic()
        action()
        assert sheet.shown > 0
        assert time.monotonic() - started < 10


def test_a_page_without_pictures_says_so(opened, tmp_path):
    browser = browser_of(20, pictures=False)
    file = tmp_path / "bare.html"
    file.write_text(render(results_of(20), browser), encoding="utf-8")
    sheet = opened(file)
    assert "not in this page" in sheet.text("#detail .panel") and sheet.page.locator("#detail img").count() == 0


def test_steps_without_a_router_can_be_looked_at(opened, tmp_path):
    matrix, side = matrix_of(8)
    steps = [step_of(k, matrix, side, choice=None, t=None, r=()) for k in range(8)]
    file = tmp_path / "routerless.html"
    file.write_text(render(results_of(8), Browser(steps, {}, [], {})), encoding="utf-8")
    sheet = opened(file)
    sheet.press("j")
    assert sheet.step == steps[1].step_id and sheet.page.locator("svg.router").count() == 0
    assert "null" not in sheet.page.locator(".row").first.get_attribute("aria-label")
