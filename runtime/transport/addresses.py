"""Where a server is found: at its endpoint, or at the address that a file names for it.

Endpoints are in programs and in the names of files; they say who a server is. One that is replaced by another on a
different host keeps its endpoint and gets a line in the file that FLAGS_rpc_endpoints_file names:

    10.0.0.1:6174 10.0.0.9:6174

The file is read again whenever a server cannot be reached. Names of hosts are looked up anew by gRPC.
"""

from __future__ import annotations

from pathlib import Path

from refluid import flags


def address_of(endpoint: str) -> str:
    """The address of a server, as of now.

    Raises:
      ValueError: a line of the file is not an endpoint and an address.
    """
    name = flags.read_flag("FLAGS_rpc_endpoints_file")
    if not name:
        return endpoint
    try:
        lines = Path(name).read_text().splitlines()
    except FileNotFoundError:  # it may appear later
        return endpoint
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words and (len(words) != 2 or not all(":" in word for word in words)):
            raise ValueError(f"{name}, line {number}: expected ENDPOINT ADDRESS, found {line.strip()!r}")
        if words and words[0] == endpoint:
            return words[1]
    return endpoint
