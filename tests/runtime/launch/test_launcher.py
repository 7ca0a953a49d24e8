"""Whole launchers with tiny scripts: real processes, real signals."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHOW = """
import os, sys
for name in sys.argv[1:]:
    print(name, os.environ.get(name))
"""

# A server that waits forever, and trainers that run the code of their argument.
ROLES = """
import os, signal, subprocess, sys, time
role = os.environ.get("TRAINING_ROLE", "TRAINER").lower() + os.environ["PADDLE_TRAINER_ID"]
print("pid", os.getpid(), flush=True)
exec(dict(argument.split(":", 1) for argument in sys.argv[1:]).get(role, "pass"))
"""
FOR_EVER = "signal.pause()"
ONE = ["--servers", "0", "--trainers", "1"]


@pytest.fixture
def launch(tmp_path):
    """Starts ``refluid launch`` in an empty folder."""
    started = []

    def start(script, *arguments, options=(), **popen):
        (tmp_path / "script.py").write_text(script)
        command = [sys.executable, "-m", "refluid.cli", "launch", *options, "script.py", *arguments]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, **popen}
        started.append(subprocess.Popen(command, **settings))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def wait_for(condition, what, timeout=30):
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"the condition never held: {what}"
        time.sleep(0.01)
    return found


def is_alive(pid):
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def logged_pids(folder):
    return [int(pid) for log in folder.glob("logs/*") for pid in re.findall(r"^pid (\d+)$\n", log.read_text(), re.M)]


def pids(folder, count):
    """The process numbers in the logs, once there are ``count``."""
    return wait_for(lambda: found if len(found := logged_pids(folder)) == count else None, f"{count} processes")


WATCH = r"\[launch\] watch the job with: FLAGS_rpc_token_file=out/\.token refluid status 127\.0\.0\.1:\d+"


def test_lines_are_prefixed_and_each_process_has_its_log(launch, tmp_path):
    names = ("PADDLE_TRAINING_ROLE", "PADDLE_TRAINER_ID")
    code, out, err = finish(launch(SHOW, *names, options=["--servers", "1", "--trainers", "2", "--log_dir", "out"]))
    assert code == 0
    started, watch = err.splitlines()
    assert started == "[launch] started 1 server and 2 trainers, logs in out/"
    assert re.fullmatch(WATCH, watch)
    assert sorted(out.splitlines()) == [
        "[server 0] PADDLE_TRAINER_ID 0",
        "[server 0] PADDLE_TRAINING_ROLE PSERVER",
        "[trainer 0] PADDLE_TRAINER_ID 0",
        "[trainer 0] PADDLE_TRAINING_ROLE TRAINER",
        "[trainer 1] PADDLE_TRAINER_ID 1",
        "[trainer 1] PADDLE_TRAINING_ROLE TRAINER",
    ]
    assert {log.name: log.read_text() for log in (tmp_path / "out").iterdir()} == {
        "serverlog.0": "PADDLE_TRAINING_ROLE PSERVER\nPADDLE_TRAINER_ID 0\n",
        "workerlog.0": "PADDLE_TRAINING_ROLE TRAINER\nPADDLE_TRAINER_ID 0\n",
        "workerlog.1": "PADDLE_TRAINING_ROLE TRAINER\nPADDLE_TRAINER_ID 1\n",
    }


def test_a_job_variable_of_the_shell_does_not_leak_in(launch):
    leaky = {**os.environ, "TRAINING_ROLE": "PSERVER", "HOME": "/home/of/mine"}
    process = launch(SHOW, "TRAINING_ROLE", "HOME", options=ONE, env=leaky)
    assert finish(process)[1] == "[trainer 0] TRAINING_ROLE None\n[trainer 0] HOME /home/of/mine\n"


def test_a_job_has_a_token_of_its_own_that_only_its_owner_can_read(launch, tmp_path):
    script = """
import os, stat
path = os.environ["FLAGS_rpc_token_file"]
print(oct(stat.S_IMODE(os.stat(path).st_mode)), len(open(path).read().strip()) >= 40)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAGS_rpc_token")}
    process = launch(script, options=ONE, env=environment)
    assert finish(process)[1] == "[trainer 0] 0o600 True\n"
    assert not (tmp_path / "logs" / ".token").exists()


def test_the_token_of_the_user_is_passed_on(launch):
    names = ("FLAGS_rpc_token", "FLAGS_rpc_token_file")
    process = launch(SHOW, *names, options=ONE, env={**os.environ, "FLAGS_rpc_token": "the-secret-of-the-user"})
    shown = "[trainer 0] FLAGS_rpc_token the-secret-of-the-user\n[trainer 0] FLAGS_rpc_token_file None\n"
    assert finish(process)[1] == shown


def test_a_server_can_listen_on_its_port(launch):
    script = """
import os, socket
host, port = os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])
if os.environ["TRAINING_ROLE"] == "PSERVER":
    with socket.create_server((host, port)) as server:
        server.accept()[0].sendall(b"hello")
else:
    for endpoint in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(","):
        host, port = endpoint.split(":")
        while True:
            try:
                print(socket.create_connection((host, int(port))).recv(5).decode())
                break
            except ConnectionRefusedError:
                pass
"""
    code, out, _ = finish(launch(script, options=["--servers", "2", "--trainers", "1"]))
    assert (code, out) == (0, "[trainer 0] hello\n[trainer 0] hello\n")


def test_the_first_failure_is_named_with_its_last_lines_and_ends_the_job(launch, tmp_path):
    fail = "trainer1:print(*range(30), sep='\\n'); print('the reason', file=sys.stderr); sys.exit(7)"
    others = [f"{role}:{FOR_EVER}" for role in ("pserver0", "trainer0")]
    code, _, err = finish(launch(ROLES, fail, *others, options=["--servers", "1", "--quiet"]))
    assert code == 7
    said, *lines = err.split("[launch] ")[3:]
    assert said.startswith("trainer 1 exited with code 7 after ") and "(logs/workerlog.1):" in said
    assert [line.strip() for line in lines] == [*map(str, range(11, 30)), "the reason"]
    assert (found := logged_pids(tmp_path)) and not any(map(is_alive, found))


DIES = """
if not os.path.exists("died" + role):
    open("died" + role, "w").close()
    print("first life", os.environ["FLAGS_rpc_lost_trainer"], os.environ["FLAGS_rpc_server_snapshots"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
print("second life")
open("alive" + role, "w").close()
while role == "pserver0" and not os.path.exists("alivetrainer1"):
    time.sleep(0.01)
"""


def test_a_process_that_fails_is_started_again_with_a_log_of_all_its_lives(launch, tmp_path):
    roles = [f"{role}:{DIES}" for role in ("pserver0", "trainer1")]
    code, out, err = finish(launch(ROLES, *roles, options=["--servers", "1", "--restarts", "1"]))
    assert code == 0, err
    assert not (tmp_path / "logs" / ".restarts").exists(), "what servers keep is for this job"
    for member, log in (("server 0", "serverlog.0"), ("trainer 1", "workerlog.1")):
        assert re.search(
            rf"{member} was killed by SIGKILL, .* after 0 s; starting it again in 1 s \(restart 1 of 1\)", err
        )
        assert f"[launch] started {member} again" in err
        first, note, second = re.findall("^(?!pid).+", (tmp_path / "logs" / log).read_text(), re.M)
        assert first == f"first life wait {tmp_path}/logs/.restarts/snapshots"
        assert note.startswith(f"[launch] {member} was killed by SIGKILL") and second == "second life"
        assert out.count(f"[{member}] second life") == 1


def test_a_trainer_is_not_started_again_after_its_servers_have_ended(launch):
    ends = "open('pid', 'w').write(str(os.getpid()))"
    fails = """
while not os.path.exists("pid") or not (pid := open("pid").read()):
    time.sleep(0.01)
while b" Z " not in subprocess.check_output(["cat", f"/proc/{pid}/stat"]):  # it has ended; the launcher reaps it later
    time.sleep(0.01)
sys.exit(7)
"""
    roles = [f"pserver0:{ends}", f"trainer1:{fails}", f"trainer0:{FOR_EVER}"]
    code, _, err = finish(launch(ROLES, *roles, options=["--servers", "1", "--restarts", "1"]))
    assert code == 7
    assert "trainer 1 is not started again: all servers have ended" in err and "started trainer 1" not in err


def test_a_process_that_fails_too_often_ends_the_job(launch, tmp_path):
    fails = "trainer1:print('the reason'); sys.exit(7)"
    options = ["--servers", "1", "--restarts", "1"]
    code, _, err = finish(launch(ROLES, fails, f"pserver0:{FOR_EVER}", f"trainer0:{FOR_EVER}", options=options))
    assert code == 7
    assert err.count("starting it again") == 1 and re.search(r"trainer 1 exited with code 7 .*its last lines", err)


def test_trainers_can_be_started_alone_to_be_added_to_a_job(launch, tmp_path):
    names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_PSERVERS_IP_PORT_LIST", "TRAINING_ROLE")
    given = ["--role", "trainer", "--endpoints", "10.0.0.1:6174", "--first", "4", "--trainers", "1"]
    code, out, err = finish(launch(SHOW, *names, options=given))
    assert code == 0 and "started 1 trainer, logs in logs/" in err
    shown = [line.removeprefix("[trainer 4] ") for line in out.splitlines()]
    values = ("4", "5", "10.0.0.1:6174", "TRAINER")
    assert shown == [f"{name} {value}" for name, value in zip(names, values, strict=True)]
    code, _, err = finish(launch(SHOW, options=["--first", "4"]))
    assert code == 2 and "--endpoints and --first are for --role trainer" in err


def test_restarts_need_servers_and_a_folder(launch):
    code, _, err = finish(launch(ROLES, options=[*ONE, "--restarts", "1"]))
    assert code == 2 and "--restarts is for jobs with parameter servers" in err


def test_an_ending_by_a_signal_is_named(launch):
    process = launch(ROLES, "trainer0:os.kill(os.getpid(), signal.SIGKILL)", options=ONE)
    code, _, err = finish(process)
    assert code == 137
    assert "trainer 0 was killed by SIGKILL, possibly because memory ran out" in err


def test_servers_that_stay_are_stopped_after_the_last_trainer(launch, tmp_path):
    process = launch(ROLES, f"pserver0:{FOR_EVER}", options=["--servers", "1", "--trainers", "1", "--grace", "0.1"])
    code, _, err = finish(process)
    assert code == 0
    assert "stopping server 0: still running 0.1 s after the last trainer ended" in err
    assert not any(map(is_alive, pids(tmp_path, 2)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everybody_and_what_they_started(launch, tmp_path, number):
    sleeper = "print('pid', subprocess.Popen(['sleep', '600']).pid, flush=True); " + FOR_EVER
    process = launch(
        ROLES, *(f"{role}:{sleeper}" for role in ("pserver0", "trainer0", "trainer1")), options=["--servers", "1"]
    )
    found = pids(tmp_path, 6)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + number
    assert f"{number.name}: stopping 1 server and 2 trainers" in err
    wait_for(lambda: not any(map(is_alive, found)), "the end of all processes")


def test_a_process_that_does_not_stop_is_killed(launch, tmp_path):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('pid 0', flush=True); time.sleep(600)"
    process = launch(ROLES, f"trainer0:{deaf}", options=[*ONE, "--grace", "0.1"])
    pids(tmp_path, 2)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "trainer 0 did not stop in time; killing it" in err


def test_a_killed_launcher_takes_its_processes_along(launch, tmp_path):
    process = launch(
        ROLES, f"pserver0:{FOR_EVER}", f"trainer0:{FOR_EVER}", options=["--servers", "1", "--trainers", "1"]
    )
    found = pids(tmp_path, 2)
    process.kill()
    wait_for(lambda: not any(map(is_alive, found)), "the end of all processes")


def test_a_terminal_gets_a_status_line(launch, tmp_path):
    master, slave = pty.openpty()
    screen = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    screen.pop("NO_COLOR", None)
    process = launch(
        ROLES,
        f"trainer0:print('step 1'); {FOR_EVER}",
        options=ONE,
        env=screen,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = ""

    def read():
        nonlocal shown
        shown += os.read(master, 4096).decode()
        return "| trainers 1 running, 0 done | trainer 0: step 1" in shown

    wait_for(read, "the status line")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    os.close(master)
    assert "\x1b[36m[trainer 0]\x1b[0m step 1\r\n" in shown


def test_output_without_a_reader_does_not_end_the_job(launch, tmp_path):
    process = launch(ROLES, "trainer0:print('x' * 10000)", options=ONE)
    process.stdout.close()
    process.stdout = None
    assert finish(process)[0] == 0
    assert "x" * 10000 in (tmp_path / "logs/workerlog.0").read_text()


def test_a_missing_script_is_said_at_once(launch, tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "refluid.cli", "launch", "nowhere.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (process.returncode, process.stderr) == (2, "refluid launch: script nowhere.py does not exist\n")
