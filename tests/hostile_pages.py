"""Pages that do what a task must not do, each when it is tapped. Their core is their own, and the least that begins."""

PAGE = """<!doctype html><title>hostile</title><body style="margin:0"><div id="query">Do it.</div>
<button id="go" style="width:200px;height:300px">Go</button><script>
Math.seedrandom = () => {{}};
const core = {{
  startEpisodeReal() {{ document.getElementById("go").onclick = () => {{ {on_tap} }}; {on_start} }},
  getUtterance: () => document.getElementById("query").textContent,
  endEpisode: (reward) => console.log(`reward: 0 (raw: ${{reward}})`),
}};
{on_load}
</script>"""


def write(root, name, on_tap="", on_start="", on_load=""):
    """A page as a task of that name under a folder of pages."""
    folder = root / "miniwob"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.html").write_text(PAGE.format(on_tap=on_tap, on_start=on_start, on_load=on_load), "utf-8")
