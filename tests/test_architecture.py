"""The house stands as it is drawn: imports walk one way, the top level holds what it should."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Each room imports only from those before it. A tuple holds neighbours that may not know each other.
CORRIDOR: tuple[tuple[str, ...], ...] = (
    ("steps", "stages", "arguments", "resolved", "console", "ranks", "flags"),
    ("benchmarks",),
    ("memory", "envs"),
    ("prompts",),
    ("actors",),
    ("harvest",),
    ("preference",),
    ("router",),
    ("learner",),
    ("policy",),
    ("agent",),
    ("evaluation",),
    ("report",),
    ("rollout",),
    ("settings", "runs"),
    ("pipeline", "expected"),
    ("commands",),
    ("cli",),
)
RANK = {room: rank for rank, rooms in enumerate(CORRIDOR) for room in rooms}
# The scripts that train the shipped actors stand beside the corridor: nothing in it imports them.
BESIDE = {"pocket_actor", "miniwob_actor"}
WITHOUT_LIGHTNING = {
    "steps",
    "benchmarks",
    "envs",
    "memory",
    "prompts",
    "harvest",
    "preference",
    "router",
    "policy",
    "agent",
    "evaluation",
    "rollout",
}
WITHOUT_TORCH = {"steps", "benchmarks"}
TOP_LEVEL = {
    "pyproject.toml", "README.md", "train.py", "switchmem", "configs", "data_modules", "callbacks", "tests",
    "Makefile", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".ci", ".gitignore", "benchmarks", "docs",
}  # fmt: skip


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def room_of(path: Path) -> str:
    """``switchmem/memory/bank.py`` -> memory; ``switchmem/steps.py`` -> steps; the package's __init__ -> ''."""
    parts = path.relative_to(ROOT / "switchmem").with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imported(path: Path) -> list[tuple[int, str]]:
    """Every module that a file imports anywhere, functions and type checks included, as (line, dotted name)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the full name"
            module = node.module or ""
            # `from switchmem import memory` names the room only in the alias
            found += [(node.lineno, f"{module}.{a.name}" if module == "switchmem" else module) for a in node.names]
    return found


def rooms_imported(path: Path) -> set[tuple[int, str]]:
    return {(line, name.split(".")[1]) for line, name in imported(path) if name.startswith("switchmem.")}


@pytest.mark.parametrize("path", sources("switchmem"), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_from_rooms_before_it(path):
    room = room_of(path)
    if room in BESIDE or not room:
        return
    assert room in RANK, f"{path} stands in a room that the corridor does not know: give it a place in CORRIDOR"
    for line, other in rooms_imported(path):
        assert other in RANK, f"{path}:{line} imports from {other!r}, which has no place in the corridor"
        assert other == room or RANK[other] < RANK[room], f"{path}:{line} steps back from {room} to {other}"


@pytest.mark.parametrize("path", sources("switchmem"), ids=lambda p: str(p.relative_to(ROOT)))
def test_switchmem_knows_nothing_of_what_stands_on_it(path):
    for line, name in imported(path):
        top = name.split(".")[0]
        assert top not in {"data_modules", "callbacks", "tests", "train"}, f"{path}:{line} imports {name}"
        if room_of(path) in WITHOUT_LIGHTNING:
            assert top not in {"lightning", "pytorch_lightning"}, f"{path}:{line} imports {name}"
        if room_of(path) in WITHOUT_TORCH:
            assert top != "torch", f"{path}:{line} imports {name}"


def test_only_actors_import_transformers():
    for path in sources("switchmem") + sources("data_modules") + sources("callbacks"):
        if path.is_relative_to(ROOT / "switchmem") and room_of(path) in {"actors", *BESIDE}:
            continue
        for line, name in imported(path):
            assert name.split(".")[0] != "transformers", f"{path}:{line} imports {name}"


def test_the_top_level_holds_what_it_should():
    try:
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    found = {line.split("/")[0] for line in tracked.splitlines()}
    assert found <= TOP_LEVEL, f"unexpected at the top level: {sorted(found - TOP_LEVEL)}"


def test_train_py_is_a_few_lines_without_classes():
    text = (ROOT / "train.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 10
    assert not [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)]


def test_cli_uses_public_hooks_only():
    """Neither private members of Lightning's CLI nor private modules of the libraries below it."""
    pipeline = sorted(f"pipeline/{p.name}" for p in (ROOT / "switchmem" / "pipeline").glob("*.py"))
    for name in ("cli.py", "commands.py", "runs.py", *pipeline):
        tree = ast.parse((ROOT / "switchmem" / name).read_text(encoding="utf-8"))
        own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        own |= {n.attr for n in assigned}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                assert node.attr in own, f"{name}:{node.lineno} reaches for the private {node.attr}"
        for _, module in imported(ROOT / "switchmem" / name):
            assert not any(p.startswith("_") for p in module.split(".") if p != "__future__"), (
                f"{name} imports {module}"
            )


def test_importing_the_command_line_loads_no_actor():
    code = (
        "import sys, switchmem.cli\n"
        "heavy = 'switchmem.actors.vlm', 'transformers.modeling_utils', 'sentence_transformers'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
