"""Nothing swallowed, nothing skipped, nothing left undone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

UNDONE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SKIPS = {"skip", "skipif", "xfail", "importorskip"}
PRODUCT = ("spawner", "hub", "extensions", "deploy", "images")


def trees(modules: list[Path], root: Path, *tops: str) -> list[tuple[str, ast.Module]]:
    return [
        (str(name), ast.parse(path.read_text(encoding="utf-8")))
        for path in modules
        if (name := path.relative_to(root)).parts[0] in tops
    ]


def test_no_broad_exception_is_swallowed(modules: list[Path], root: Path) -> None:
    wrong = []
    for name, tree in trees(modules, root, *PRODUCT, "tests"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
            )
            silent = all(isinstance(item, ast.Pass | ast.Continue) for item in node.body)
            if broad and silent:
                wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


def test_no_test_is_skipped(modules: list[Path], root: Path) -> None:
    wrong = []
    for name, tree in trees(modules, root, "tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in SKIPS:
                of = node.value
                base = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
                if base in {"pytest", "mark", "unittest"}:
                    wrong.append(f"{name}:{node.lineno} {base}.{node.attr}")
    assert wrong == []


def test_nothing_is_left_undone(modules: list[Path], root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)}:{number}"
        for path in modules
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNDONE.search(line)
    ]
    assert wrong == []


def test_no_function_is_a_stub(modules: list[Path], root: Path) -> None:
    """A body of `pass`, `...` or NotImplementedError is allowed in protocols and abstract methods only."""
    wrong = []
    for name, tree in trees(modules, root, *PRODUCT):
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef) and is_abstract(owner):
                continue
            wrong += [
                f"{name}:{node.lineno} {node.name}"
                for node in ast.iter_child_nodes(owner)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_stub(node)
            ]
    assert wrong == []


def is_abstract(node: ast.ClassDef) -> bool:
    bases = {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
    return bool(bases & {"Protocol", "ABC"})


def is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]
    elif isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        # A docstring alone says why there is nothing to do (a hook's default); an ellipsis says nothing.
        return body[0].value.value is ...
    if len(body) != 1:
        return False
    only = body[0]
    if isinstance(only, ast.Raise) and only.exc is not None:
        raised = only.exc.func if isinstance(only.exc, ast.Call) else only.exc
        return getattr(raised, "id", "") == "NotImplementedError"
    return isinstance(only, ast.Pass)


def test_no_shell(modules: list[Path], root: Path) -> None:
    wrong = []
    for name, tree in trees(modules, root, *PRODUCT):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                wrong.append(f"{name}:{node.value.lineno}")
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen"):
                    wrong.append(f"{name}:{node.lineno}")
    assert wrong == []


def test_test_folders_are_no_packages(files: list[Path], root: Path) -> None:
    inside = [path.relative_to(root) for path in files if path.name == "__init__.py"]
    assert [str(p) for p in inside if p.parts[0] == "tests" and p.parts[1] != "support"] == []


def test_test_files_have_names_of_their_own(modules: list[Path], root: Path) -> None:
    names = [path.name for path in modules if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
