"""TLS: the certificate that `up` is given is served by the proxy, and a wrong one is refused."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from allotment.cli import build_app
from allotment_testing.installation import Installation
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "allotment test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


def test_served_with_tls(installation: Installation, pair: tuple[Path, Path]) -> None:
    installation.up("--gpus", "none", "--tls-cert", str(pair[0]), "--tls-key", str(pair[1]))
    url = installation.connection.hub_url
    assert url == f"https://127.0.0.1:{installation.port}"
    trust = ssl.create_default_context(cafile=str(pair[0]))
    with httpx.Client(base_url=url, verify=trust) as browser:
        reply = browser.get("/hub/login")
        assert reply.status_code == 200
        cookie = next(line for line in reply.headers.get_list("set-cookie") if line.startswith("_xsrf"))
        assert "secure" in cookie.lower()
        assert browser.get("/services/allotment/health").json()["ready"] is True
    said = CliRunner().invoke(build_app(), ["status", "--data-dir", str(installation.data)])
    assert (said.exit_code, "does not work" in said.output) == (0, False), said.output


def test_a_key_of_another_certificate_is_refused(installation: Installation, pair: tuple[Path, Path]) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    pair[1].write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    done = installation.up("--tls-cert", str(pair[0]), "--tls-key", str(pair[1]), check=False)
    assert done.returncode == 2
    assert "not a PEM certificate and its unencrypted private key" in done.stderr
