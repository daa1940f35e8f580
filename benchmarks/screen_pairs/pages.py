"""Pages before anything happens on them: lists, cards and forms under an app bar."""

from __future__ import annotations

from PIL import Image, ImageDraw

from benchmarks.screen_pairs.scene import Rect, Scene, element, write


def draw_page(scene: Scene) -> tuple[Image.Image, int]:
    """A page with its app bar, and where its content begins."""
    width, height = scene.size
    image = Image.new("RGB", scene.size, scene.theme.page)
    bar = (0, scene.dp(28), width, scene.dp(80))
    if scene.rng.random() < 0.5:
        ImageDraw.Draw(image).rectangle((0, 0, width, bar[3]), fill=scene.theme.accent)
    title = write(scene, image, (scene.dp(20), bar[1] + scene.dp(12)), scene.words(2), 20, scene.theme.ink)
    scene.elements += [element((0, 0, width, height), scene.size, kind="Root")]
    scene.elements += [element(bar, scene.size, kind="Toolbar"), element(title, scene.size, "title", "Text")]
    scene.rng.choice((_list, _cards, _form))(scene, image, bar[3])
    return image, bar[3]


def _list(scene: Scene, image: Image.Image, top: int) -> None:
    for y in range(top + scene.dp(8), image.height - scene.dp(70), scene.dp(64)):
        _row(scene, image, (0, y, image.width, y + scene.dp(64)))


def _row(scene: Scene, image: Image.Image, box: Rect) -> None:
    draw, dp = ImageDraw.Draw(image), scene.dp
    x, y = box[0] + dp(20), box[1] + dp(12)
    colour = tuple(scene.rng.randrange(40, 220) for _ in range(3))
    draw.ellipse((x, y, x + dp(36), y + dp(36)), fill=colour)
    label = write(scene, image, (x + dp(52), y), scene.words(2), 15, scene.theme.ink)
    write(scene, image, (x + dp(52), y + dp(21)), scene.words(3), 12, scene.theme.faint)
    draw.line((x + dp(52), box[3] - 1, box[2], box[3] - 1), fill=scene.theme.card, width=max(1, dp(0.5)))
    scene.elements += [element(box, scene.size, kind="Row"), element(label, scene.size, "row", "Text")]


def _cards(scene: Scene, image: Image.Image, top: int) -> None:
    dp, draw = scene.dp, ImageDraw.Draw(image)
    columns = scene.rng.choice((2, 3, 4))
    side = (image.width - dp(12)) // columns
    for y in range(top + dp(12), image.height - side - dp(40), side):
        for column in range(columns):
            box = dp(12) + column * side, y, (column + 1) * side, y + side - dp(12)
            draw.rounded_rectangle(box, dp(10), fill=tuple(scene.rng.randrange(60, 240) for _ in range(3)))
            write(scene, image, (box[0] + dp(8), box[3] - dp(24)), scene.words(1), 13, (10, 10, 10))
            scene.elements.append(element(box, scene.size, kind="Card"))


def _form(scene: Scene, image: Image.Image, top: int) -> None:
    dp, draw = scene.dp, ImageDraw.Draw(image)
    for y in range(top + dp(20), image.height - dp(120), dp(82)):
        write(scene, image, (dp(20), y), scene.words(2), 13, scene.theme.faint)
        box = (dp(20), y + dp(22), image.width - dp(20), y + dp(66))
        draw.rounded_rectangle(box, dp(6), outline=scene.theme.faint, width=max(1, dp(1)))
        scene.elements.append(element(box, scene.size, kind="Field"))
