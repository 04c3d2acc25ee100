"""YAML read into plain data that remembers the line of every key, with duplicate keys refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

__all__ = ["ConfigError", "Document", "KeyPath", "read_document"]

KeyPath = tuple[str | int, ...]


class ConfigError(Exception):
    """Everything that is wrong with the configuration, one `file:line: key: what is wrong` each."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = tuple(findings)


@dataclass(slots=True)
class Document:
    """One file's data; `lines` maps the path of every key and list item to its line (from 1)."""

    path: Path
    data: object = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def line(self, key: KeyPath) -> int:
        """Line of this key, or of its nearest ancestor that stands in the file."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)

    def complain(self, key: KeyPath, what: str) -> None:
        """Note one finding at this key."""
        name = ".".join(str(part) for part in key)
        place = f"{self.path}:{self.line(key)}: "
        self.findings.append(place + (f"{name}: {what}" if name else what))


def read_document(path: Path) -> Document:
    """Read a file; syntax errors, duplicate keys and an unreadable file become findings."""
    document = Document(path=path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        document.findings.append(f"{path}:1: the file does not exist")
        return document
    except (OSError, UnicodeDecodeError) as error:
        document.findings.append(f"{path}:1: the file cannot be read: {error}")
        return document
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is not None:
            document.data = _convert(loader, root, (), document, frozenset())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        document.findings.append(f"{path}:{line}: not valid YAML: {error.problem or error}")
    except yaml.YAMLError as error:
        document.findings.append(f"{path}:1: not valid YAML: {error}")
    finally:
        loader.dispose()
    return document


def _convert(
    loader: yaml.SafeLoader, node: yaml.Node, key: KeyPath, document: Document, above: frozenset[int]
) -> object:
    document.lines.setdefault(key, node.start_mark.line + 1)
    if id(node) in above:
        document.complain(key, "an alias may not hold itself")
        return None
    above = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        return _convert_mapping(loader, node, key, document, above)
    if isinstance(node, yaml.SequenceNode):
        return [
            _convert(loader, item, (*key, index), document, above) for index, item in enumerate(node.value)
        ]
    return loader.construct_object(node)


def _convert_mapping(
    loader: yaml.SafeLoader, node: yaml.MappingNode, key: KeyPath, document: Document, above: frozenset[int]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for name_node, value_node in node.value:
        line = name_node.start_mark.line + 1
        if not isinstance(name_node, yaml.ScalarNode):
            document.complain(key, "a key must be a word")
            continue
        name = str(name_node.value)
        path = (*key, name)
        if name in found:
            where = f"{document.path}:{line}: {'.'.join(map(str, path))}"
            document.findings.append(f"{where}: stands here twice, first in line {document.lines[path]}")
            continue
        document.lines[path] = line
        found[name] = _convert(loader, value_node, path, document, above)
    return found
