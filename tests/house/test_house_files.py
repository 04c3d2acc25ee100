"""The tree, the length of files and functions, and what every module says of itself."""

from __future__ import annotations

import ast
from pathlib import Path

TOP = {
    *("spawner", "hub", "extensions", "images", "deploy", "tests", "README.md", "LICENSE"),
    *(".ci", ".editorconfig", ".gitattributes", ".gitignore", ".dockerignore", ".importlinter", ".mypy.ini"),
    *(".pre-commit-config.yaml", ".pytest.ini", ".ruff.toml"),
}
TEXT = {".py", ".js", ".css", ".html", ".sh", ".yaml", ".toml", ".md", ".ini"}
CODE = {".py", ".js", ".css", ".html", ".sh", ""}
PRODUCT = ("spawner", "hub", "extensions")


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_product(path: Path, root: Path) -> bool:
    return path.relative_to(root).parts[0] in PRODUCT


def test_top_level_is_fixed(files: list[Path], root: Path) -> None:
    assert {path.relative_to(root).parts[0] for path in files} <= TOP


def test_files_are_at_most_400_lines(files: list[Path], root: Path) -> None:
    checked = [path for path in files if path.suffix in CODE]
    long = {
        str(path.relative_to(root)): count
        for path in checked
        if (count := path.read_bytes().count(b"\n")) > 400
    }
    assert long == {}


def test_functions_are_at_most_40_lines(modules: list[Path], root: Path) -> None:
    long = [
        f"{path.relative_to(root)}:{node.lineno} {node.name} has {length} lines"
        for path in modules
        for node in functions(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > 40
    ]
    assert long == []


def test_every_module_begins_with_one_line_that_says_what_it_is(modules: list[Path], root: Path) -> None:
    wrong = []
    for path in modules:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if not text or not text.splitlines()[0].strip():
            wrong.append(str(path.relative_to(root)))
    assert wrong == []


def test_product_modules_name_what_they_export(modules: list[Path], root: Path) -> None:
    wrong = []
    for path in modules:
        # A package's own file may be empty, and migrations are found by name.
        if not is_product(path, root) or path.name == "__init__.py" or "versions" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        if "__all__" not in names and path.name not in {"jupyterhub_config.py", "env.py", "__main__.py"}:
            wrong.append(str(path.relative_to(root)))
    assert wrong == []


def test_modules_have_future_annotations(modules: list[Path], root: Path) -> None:
    wrong = [
        str(path.relative_to(root))
        for path in modules
        if path.name != "__init__.py"
        and path.relative_to(root).parts[0] != "images"  # runs inside images only
        and "from __future__ import annotations" not in path.read_text(encoding="utf-8")
    ]
    assert wrong == []


def test_distributions_are_typed(root: Path) -> None:
    for package in ("spawner/allotment_spawner", "hub/allotment_hub", "extensions/allotment"):
        assert (root / package / "py.typed").exists()


def test_text_files_are_tidy(files: list[Path], root: Path) -> None:
    wrong = []
    for path in files:
        if path.suffix not in TEXT:
            continue
        data = path.read_bytes()
        if b"\r" in data or b"\t" in data or (data and not data.endswith(b"\n")):
            wrong.append(str(path.relative_to(root)))
    assert wrong == []
