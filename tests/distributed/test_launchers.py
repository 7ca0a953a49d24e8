"""``python -m paddle.distributed.launch_ps`` and ``launch``, with real processes that show their environment."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ)]))
"""


@pytest.fixture
def run(tmp_path):
    """Runs a launcher; exit code, what each process saw (by log name), output, errors."""
    (tmp_path / "show.py").write_text(SCRIPT)

    def run(launcher, *options, script="show.py", **variables):
        done = subprocess.run(
            [sys.executable, "-m", f"paddle.distributed.{launcher}", *options, script, "--epochs", "3"],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        seen = {log.name: json.loads(log.read_text()) for log in tmp_path.glob("logs/*")}
        return done.returncode, seen, done.stdout, done.stderr

    return run


def pick(seen, *names):
    return {log: tuple(variables.get(name) for name in names) for log, (_, variables) in seen.items()}


def test_a_parameter_server_job_starts_with_free_ports(run):
    code, seen, out, _ = run("launch_ps", "--worker_num", "1", "--server_num", "2")
    assert code == 0
    assert pick(seen, "TRAINING_ROLE", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM") == {
        "serverlog.0": ("PSERVER", "0", "1"),
        "serverlog.1": ("PSERVER", "1", "1"),
        "workerlog.0": ("TRAINER", "0", "1"),
    }
    servers = ",".join(seen[f"serverlog.{number}"][1]["PADDLE_CURRENT_ENDPOINT"] for number in (0, 1))
    assert set(pick(seen, "PADDLE_PSERVERS_IP_PORT_LIST").values()) == {(servers,)}
    assert all(arguments == ["--epochs", "3"] for arguments, _ in seen.values())
    assert "server_num: 2" in out  # the configuration is printed, as Fluid's launcher does


def free_ports(count):
    with contextlib.ExitStack() as open_sockets:
        probes = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def test_the_ports_can_be_chosen(run):
    first, second = free_ports(2)
    code, seen, out, _ = run("launch_ps", "--start_port", str(first), "--server_num", "1", "--print_config", "False")
    assert code == 0
    assert "Configuration" not in out
    assert pick(seen, "PADDLE_CURRENT_ENDPOINT")["serverlog.0"] == (f"127.0.0.1:{first}",)
    endpoints = f"127.0.0.1:{second},127.0.0.1:{first}"
    code, seen, _, _ = run("launch_ps", "--endpoints", endpoints)
    assert pick(seen, "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PORT")["serverlog.1"] == (endpoints, str(first))


def test_a_port_in_use_is_said_before_anything_starts(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        code, seen, _, err = run("launch_ps", "--endpoints", endpoint)
    assert (code, seen) == (2, {})
    assert err == f"launch_ps: cannot listen on {endpoint}: Address already in use\n"


def test_each_node_starts_its_own_part(run):
    nodes = ["--cluster_node_ips", "127.0.0.1,127.0.0.2", "--node_ip", "127.0.0.2", "--start_port", "16170"]
    code, seen, _, _ = run("launch_ps", *nodes, "--worker_num", "3", "--server_num", "4")
    assert code == 0
    assert pick(seen, "PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINER_ID") == {
        "serverlog.2": ("127.0.0.2:16170", "2"),
        "serverlog.3": ("127.0.0.2:16171", "3"),
        "workerlog.2": ("127.0.0.2:17170", "2"),
    }


def test_a_node_must_be_one_of_the_nodes(run):
    code, _, _, err = run("launch_ps", "--node_ip", "10.0.0.7")
    assert (code, err) == (2, "launch_ps: --node_ip 10.0.0.7 is not one of --cluster_node_ips 127.0.0.1\n")


def test_a_failing_trainer_gives_its_exit_code(run, tmp_path):
    (tmp_path / "fail.py").write_text("import os, sys; sys.exit(5 * (os.environ['TRAINING_ROLE'] == 'TRAINER'))")
    assert run("launch_ps", "--log_dir", "", script="fail.py")[0] == 5


def test_a_collective_job_has_one_process_per_device(run):
    code, seen, _, _ = run("launch", "--selected_gpus", "4,6", "--log_dir", "logs", CUDA_VISIBLE_DEVICES="4,5,6")
    assert code == 0
    both = ",".join(seen[f"workerlog.{number}"][1]["PADDLE_CURRENT_ENDPOINT"] for number in (0, 1))
    names = ("FLAGS_selected_gpus", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "CPU_NUM", "TRAINING_ROLE")
    assert pick(seen, *names) == {"workerlog.0": ("0", "0", "2", "1", None), "workerlog.1": ("2", "1", "2", "1", None)}
    assert set(pick(seen, "PADDLE_TRAINER_ENDPOINTS").values()) == {(both,)}


def test_options_may_follow_a_word_that_is_no_script_as_in_fluids_guide(run):
    code, seen, _, _ = run("launch", "train.py", "--gpus", "2", "--log_dir", "logs", PADDLE_NUM_TRAINERS="1")
    assert code == 0
    assert pick(seen, "FLAGS_selected_gpus", "PADDLE_TRAINER_ID") == {
        "workerlog.0": ("0", "0"),
        "workerlog.1": ("1", "1"),
    }
    assert all(arguments == ["--epochs", "3"] for arguments, _ in seen.values())


def test_a_collective_job_of_several_nodes(run):
    nodes = ["--cluster_node_ips", "127.0.0.1,127.0.0.2", "--node_ip", "127.0.0.2", "--started_port", "16070"]
    code, seen, _, _ = run("launch", *nodes, "--nproc_per_node", "2", "--log_dir", "logs", PADDLE_NUM_TRAINERS="2")
    assert code == 0
    assert pick(seen, "PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT") == {
        "workerlog.2": ("2", "127.0.0.2:16070"),
        "workerlog.3": ("3", "127.0.0.2:16071"),
    }
    everybody = "127.0.0.1:16070,127.0.0.1:16071,127.0.0.2:16070,127.0.0.2:16071"
    assert pick(seen, "PADDLE_TRAINER_ENDPOINTS")["workerlog.2"] == (everybody,)


def test_a_collective_job_logs_to_mylog_and_keeps_the_number_of_devices(run, tmp_path):
    code, _, out, _ = run("launch", CPU_NUM="2")
    _, variables = json.loads((tmp_path / "mylog/workerlog.0").read_text())
    assert (code, variables["CPU_NUM"], variables["PADDLE_NUM_TRAINERS"]) == (0, "2", "1")
    assert "log_dir: mylog" in out


def test_nodes_can_come_from_the_cluster(run):
    cluster = {"PADDLE_TRAINERS": "127.0.0.3,127.0.0.2", "POD_IP": "127.0.0.2", "PADDLE_PORT": "16060"}
    _, seen, _, _ = run("launch", "--use_paddlecloud", "--log_dir", "logs", **cluster)
    assert pick(seen, "PADDLE_CURRENT_ENDPOINT") == {"workerlog.1": ("127.0.0.2:16060",)}


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        ([], {"PADDLE_NUM_TRAINERS": "3"}, "PADDLE_NUM_TRAINERS says 3 nodes, --cluster_node_ips names 1 (127.0.0.1)"),
        (["--gpus", "2"], {"CUDA_VISIBLE_DEVICES": "1"}, "GPU 0 is not among CUDA_VISIBLE_DEVICES 1"),
    ],
)
def test_what_does_not_fit_together_is_said(run, options, variables, message):
    assert run("launch", *options, **variables)[::3] == (2, f"launch: {message}\n")
