"""A small version of bench/survival: a server that is killed, behind a connection that loses and doubles."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "bench" / "survival"


def test_pushes_count_once_over_a_connection_that_loses_and_doubles(tmp_path):
    command = [sys.executable, str(SCRIPTS / "exactly_once.py"), "--pushes", "200", "--kills", "1"]
    env = {**os.environ, "REFLUID_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("1 kills") == ended.stdout.count("exact") == 2, ended.stdout
