"""images/build --audit: a finding ends the build unless accepted with a reason; silence is no clean bill."""

from __future__ import annotations

import datetime as dt
import http.server
import importlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, ClassVar

import pytest

IMAGES = Path(__file__).resolve().parents[2] / "images"
TODAY = dt.date(2026, 11, 30)
LOCK = "# head\nbad-package==1.0 --hash=sha256:00\ntorch==2.13.0+cpu\n"


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(IMAGES)
    yield importlib.import_module("builder.audit")
    for name in [one for one in sys.modules if one.partition(".")[0] == "builder"]:
        del sys.modules[name]


class AdvisoryService(http.server.BaseHTTPRequestHandler):
    """As much of OSV as pip-audit asks for: one package has an advisory."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = query["package"]["name"], query["version"]
        self.asked.append((name, version))
        advisory = {
            "id": "PYSEC-2026-1",
            "aliases": ["CVE-2026-0001"],
            "summary": "It breaks.",
            "affected": [
                {
                    "package": {"ecosystem": "PyPI", "name": name},
                    "ranges": [
                        {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]},
                    ],
                    "versions": ["1.0"],
                }
            ],
        }
        body = json.dumps({"vulns": [advisory]} if name == "bad-package" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[list[str]]:
    AdvisoryService.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), AdvisoryService) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield [
            "--osv-url",
            f"http://127.0.0.1:{server.server_port}/v1/query",
            "--vulnerability-service",
            "osv",
        ]
        server.shutdown()
        thread.join()


def test_a_finding_ends_the_build_and_names_the_fix(audit: Any, service: list[str]) -> None:
    findings, asked = audit.audit(LOCK, service=service)
    assert asked == 2
    assert ("torch", "2.13.0") in AdvisoryService.asked, "advisories know no local version"
    with pytest.raises(Exception, match=r"bad-package 1.0: PYSEC-2026-1 \(fixed in 1.1\)") as refused:
        audit.report("one", findings, asked, {})
    assert type(refused.value).__name__ == "BuildError"
    assert "images/audit-allow.yaml" in str(refused.value)


def test_an_accepted_finding_is_told_with_its_reason(audit: Any, service: list[str]) -> None:
    findings, asked = audit.audit(LOCK, service=service)
    accepted = audit.Allowed(id="CVE-2026-0001", reason="Nothing here calls it.")
    lines = audit.report("one", findings, asked, {accepted.id: accepted})
    assert lines[0] == "one: 2 packages audited, 1 known vulnerabilities, all accepted"
    assert "Nothing here calls it." in lines[1]


def test_a_clean_bill_says_how_many_were_asked_about(audit: Any, service: list[str]) -> None:
    findings, asked = audit.audit("good==1.0\n", service=service)
    assert audit.report("one", findings, asked, {}) == ["one: 1 packages audited, no known vulnerabilities"]


def test_no_answer_is_not_no_findings(audit: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1/query"
        with pytest.raises(audit.NotAudited) as refused:
            audit.audit(LOCK, service=["--osv-url", url, "--vulnerability-service", "osv"])
    assert str(refused.value)


def test_an_acceptance_needs_a_reason_and_ends(audit: Any, tmp_path: Path) -> None:
    file = tmp_path / "audit-allow.yaml"
    assert audit.read_allowed(file, today=TODAY) == {}
    file.write_text(
        "- {id: A, reason: It is so., until: 2026-11-30}\n- {id: B, reason: No., until: 2026-11-29}\n"
    )
    assert list(audit.read_allowed(file, today=TODAY)) == ["A"]
    for wrong in ("- {id: A}", "- {id: A, reason: ' '}", "- A", "- {id: A, reason: x, until: soon}"):
        file.write_text(wrong)
        with pytest.raises(Exception, match=r"audit-allow\.yaml"):
            audit.read_allowed(file, today=TODAY)
    audit.read_allowed(IMAGES / "audit-allow.yaml", today=TODAY)


@pytest.fixture
def script(audit: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """images/build as a module, beside the same images/builder as `audit`."""
    # it puts images/ there itself
    monkeypatch.setattr(sys, "path", sys.path.copy())
    spec = spec_from_loader("images_build", SourceFileLoader("images_build", str(IMAGES / "build")))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_build_goes_on_without_an_answer_unless_an_audit_was_asked_for(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    known = script.Environments(folders=[IMAGES])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        options = script.parse(["minimal", "--osv-url", f"http://127.0.0.1:{closed.getsockname()[1]}/"])
        script.check_packages(known, ["minimal"], options)
        told = capsys.readouterr()
        assert "minimal was NOT audited" in told.err
        assert "no known vulnerabilities" not in told.out + told.err
        options.audit = True
        with pytest.raises(script.BuildError, match="--no-audit"):
            script.check_packages(known, ["minimal"], options)


def test_a_missing_pip_audit_ends_a_build_only_when_asked_for(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_network(*, auditing: bool) -> None:
        if auditing:
            raise script.BuildError("pip … failed with status 1.")

    monkeypatch.setattr(script, "use_own_tools", without_network)
    options = script.parse(["minimal"])
    script.find_tools(options)
    assert options.audit is False
    assert "NOT audited" in capsys.readouterr().err
    with pytest.raises(script.BuildError):
        script.find_tools(script.parse(["minimal", "--audit"]))
