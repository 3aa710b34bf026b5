"""Closes the ports of an embedded SeaweedFS to other users of the machine.

Only its S3 port asks for keys. Through the others, any user could read and write all objects. So they accept only
clients with a certificate, which lies in a private file and is made anew at each start. It is its own authority.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from pathlib import Path

from nbdata.demo import serverstate
from nbdata.demo.serverstate import remove
from nbdata.errors import NotFound

__all__ = ["close_ports", "open_ports", "self_signed", "trusted"]

# The file in which SeaweedFS looks for its settings, in its current folder, and the certificate with its key.
_CONFIG = "security.toml"
_FILE = "certificate.pem"
# SeaweedFS's services with gRPC ports, its client for them, and its services with HTTP ports.
_GRPC = ("master", "volume", "filer", "s3", "admin", "worker", "msg_broker", "msg_agent", "mq", "client")
_HTTPS = ("master", "volume", "filer", "admin")
# Days for which a certificate is valid; no server runs longer.
_DAYS = 3650


def close_ports(folder: Path) -> None:
    """Make a certificate in a server's folder, and the settings that require it in the one that it runs in.

    Raises
    ------
    NotFound
        If the package that makes certificates is not installed.
    """
    pem = folder / _FILE
    with serverstate.fresh_file(pem) as file:
        file.write(self_signed())
    place = json.dumps(str(pem))
    pair = f"cert = {place}\nkey = {place}\n"
    lines = [f"[grpc]\nca = {place}\n", *(f"[grpc.{name}]\n{pair}" for name in _GRPC)]
    lines += [f"[https.{name}]\n{pair}ca = {place}\n" for name in _HTTPS]
    lines.append(f"[https.client]\nenabled = true\n{pair}ca = {place}\n")
    with serverstate.fresh_file(folder / "tmp" / _CONFIG) as file:
        file.write("".join(lines).encode())


def open_ports(folder: Path) -> None:
    """Remove the certificate of an earlier start."""
    remove(str(folder / _FILE))


def trusted(folder: Path) -> ssl.SSLContext | None:
    """Return the context for connections to the closed ports of a server; None if they are open."""
    pem = folder / _FILE
    if not pem.exists():
        return None
    context = ssl.create_default_context(cafile=str(pem))
    context.load_cert_chain(str(pem))
    return context


def self_signed() -> bytes:
    """Return a new key with a certificate for 127.0.0.1, signed by itself, as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise NotFound(
            "the package cryptography is not installed, without which other users of this machine could write "
            "to the embedded SeaweedFS",
            remedy="Install it with: pip install cryptography",
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nbdata demo")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
