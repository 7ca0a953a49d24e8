"""``refluid certificates``: an authority for one job and a certificate for each of its roles, made by openssl.

The authority signs nothing but this job's certificates, so whoever shows one belongs to the job. Servers and trainers
listen and call (trainers shuffle among themselves), hence both may do both.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROLES = ("server", "trainer")
AUTHORITY = "authority"


def make_certificates(folder: Path, hosts: Sequence[str], days: int) -> None:
    """Writes ``authority.pem``, and ``server.pem`` and ``trainer.pem`` with their keys, to a folder.

    An authority that is there already is used again: that renews certificates which processes read without a restart.

    Raises:
      RuntimeError: openssl is missing or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if not authority_key.exists():
        subject = ["-subj", "/CN=refluid job authority", "-days", str(10 * days)]
        extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
        _replace(
            lambda certificate, key: _openssl(
                "req", "-x509", *_NEW_KEY, "-keyout", key, "-out", certificate, *subject, *extensions
            ),
            authority,
            authority_key,
        )
    for role in ROLES:
        _replace(
            lambda certificate, key, role=role: _sign(
                role, hosts, days, (str(authority), str(authority_key)), certificate, key
            ),
            folder / f"{role}.pem",
            folder / f"{role}.key",
        )


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _sign(role: str, hosts: Sequence[str], days: int, authority: tuple[str, str], certificate: str, key: str) -> None:
    lines = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth,clientAuth",
        f"subjectAltName={','.join(map(_alternative, hosts))}",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        request, extensions = f"{scratch}/request", Path(scratch, "extensions")
        extensions.write_text("\n".join(lines))
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN=refluid {role}")
        signing = ["-CA", authority[0], "-CAkey", authority[1], "-set_serial", f"0x{os.urandom(16).hex()}"]
        options = ["-days", str(days), "-extfile", str(extensions), "-out", certificate]
        _openssl("x509", "-req", "-in", request, *signing, *options)


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host.strip('[]'))}"
    except ValueError:
        return f"DNS:{host}"


def _replace(make: Callable[[str, str], None], certificate: Path, key: Path) -> None:
    """Has two files made and renames them: nobody reads half of one, and only the owner reads keys."""
    parts = [path.with_name(path.name + ".partial") for path in (certificate, key)]
    before = os.umask(0o077)
    try:
        make(*map(str, parts))
    finally:
        os.umask(before)
    parts[0].chmod(0o644)
    os.replace(parts[1], key)
    os.replace(parts[0], certificate)


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RuntimeError("openssl is not installed, and certificates are made by it") from None
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")


def add_certificates(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    command.add_argument("folder", help="where they are written; an authority there signs the new ones")
    command.add_argument(
        "--hosts",
        default="localhost,127.0.0.1,::1",
        metavar="NAMES",
        help="names and addresses of all machines, with commas between; *.example.com stands for many",
    )
    command.add_argument("--days", type=int, default=90, help="how long they are valid (default 90)")


def write_certificates(chosen: argparse.Namespace) -> int:
    """Carries the command out."""
    folder, hosts = Path(chosen.folder), [host.strip() for host in chosen.hosts.split(",") if host.strip()]
    if not hosts or chosen.days < 1:
        raise ValueError("certificates need at least one host and one day")
    make_certificates(folder, hosts, chosen.days)
    print(f"wrote {', '.join(f'{role}.pem, {role}.key' for role in ROLES)} and {AUTHORITY}.pem to {folder}")
    print(f"keep {AUTHORITY}.key away from the job: whoever has it can make certificates")
    return 0
