import os
import subprocess
import sys

import pytest

from refluid.runtime.launch.cluster import expand_hosts, membership

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "5",
    "SLURM_JOB_NODELIST": "gpu[01-02],big7",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
LAUNCHED = {"PADDLE_TRAINER_ENDPOINTS": "a:1,b:2", "PADDLE_TRAINER_ID": "1", "PADDLE_CURRENT_ENDPOINT": "b:2"}


def test_a_process_alone_is_no_member():
    assert membership({}) is None
    assert membership({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}) is None


def test_launchers_say_it_all():
    found = membership(LAUNCHED | SLURM | OPEN_MPI)
    assert (found.endpoints, found.rank, found.endpoint) == (("a:1", "b:2"), 1, "b:2")


@pytest.mark.parametrize("left_out", ["PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT"])
def test_the_number_or_the_endpoint_is_enough(left_out):
    assert membership({name: value for name, value in LAUNCHED.items() if name != left_out}).rank == 1


def test_slurm_numbers_tasks_node_by_node():
    found = membership(SLURM)
    assert found.endpoints == ("gpu01:6170", "gpu01:6171", "gpu02:6170", "gpu02:6171", "big7:6170")
    assert found.endpoint == "gpu02:6171"
    assert membership(SLURM | {"PADDLE_PORT": "7000"}).endpoint == "gpu02:7001"
    assert found.variables() == {
        "PADDLE_TRAINER_ID": "3",
        "PADDLE_TRAINERS_NUM": "5",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(found.endpoints),
        "PADDLE_CURRENT_ENDPOINT": "gpu02:6171",
    }


def test_open_mpi_on_one_node_and_on_named_ones():
    assert membership(OPEN_MPI).endpoints == ("127.0.0.1:6170", "127.0.0.1:6171")
    several = OPEN_MPI | {
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "2",
        "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
    }
    assert membership(several).endpoint == "10.0.0.2:6170"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-10,12]b,c", ["a08b", "a09b", "a10b", "a12b", "c"]),
        ("r[1-2]n[3-4]", ["r1n3", "r2n3", "r1n4", "r2n4"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, names):
    assert sorted(expand_hosts(text)) == sorted(names)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (LAUNCHED | {"PADDLE_CURRENT_ENDPOINT": "c:3"}, "PADDLE_CURRENT_ENDPOINT c:3 is not among"),
        (LAUNCHED | {"PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINER_ID is 0, but PADDLE_CURRENT_ENDPOINT b:2 is number 1"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1"}, "neither PADDLE_TRAINER_ID nor PADDLE_CURRENT_ENDPOINT"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1", "PADDLE_TRAINER_ID": "4"}, "rank 4 is not among the 1 endpoints"),
        (SLURM | {"SLURM_NTASKS": "4"}, "Slurm's variables do not fit together"),
        (SLURM | {"SLURM_TASKS_PER_NODE": "two"}, "expected numbers, such as 2"),
        (SLURM | {"SLURM_JOB_NODELIST": "a[1-"}, "do not fit together|cannot read the list of nodes"),
        (SLURM | {"SLURM_JOB_NODELIST": ""}, "was the script started by srun"),
        (SLURM | {"SLURM_DISTRIBUTION": "cyclic"}, "--distribution=block only"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "4"}, "name all nodes in PADDLE_TRAINERS .now unset."),
    ],
)
def test_what_does_not_fit_together_is_refused(variables, message):
    with pytest.raises(ValueError, match=message):
        membership(variables)


def run(tmp_path, **variables):
    (tmp_path / "show.py").write_text("import os, sys; print(os.environ['PADDLE_CURRENT_ENDPOINT'], sys.argv[1:])")
    command = [sys.executable, "-m", "refluid.cli", "run", "show.py", "--epochs", "3"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "SLURM_"))}
    return subprocess.run(command, cwd=tmp_path, env=environment | variables, capture_output=True, text=True)


def test_a_script_that_slurm_starts_sees_the_variables_of_fluid(tmp_path):
    done = run(tmp_path, **SLURM)
    assert (done.returncode, done.stdout) == (0, "gpu02:6171 ['--epochs', '3']\n")


def test_a_script_that_nobody_started_is_told_so(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "start it by srun or mpirun" in done.stderr
