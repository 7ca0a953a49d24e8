import pytest

from refluid.runtime.launch.environment import Placement, split_endpoint, spread

TWO_AND_TWO = Placement(("127.0.0.1:6174", "127.0.0.2:6174"), ("127.0.0.1:7000", "127.0.0.1:7001"))


def test_servers_come_first_and_members_say_who_they_are():
    assert [str(member) for member in TWO_AND_TWO.members()] == ["server 0", "server 1", "trainer 0", "trainer 1"]
    assert [m.log_name for m in TWO_AND_TWO.members()] == ["serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"]


def test_every_generation_of_scripts_finds_its_variables():
    assert TWO_AND_TWO.environment(TWO_AND_TWO.members()[1]) == {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6174,127.0.0.2:6174",
        "PADDLE_PSERVERS": "127.0.0.1,127.0.0.2",
        "PADDLE_PSERVER_IPS": "127.0.0.1,127.0.0.2",
        "PADDLE_PSERVER_PORT": "6174",
        "PADDLE_CURRENT_IP": "127.0.0.2",
        "POD_IP": "127.0.0.2",
        "PADDLE_PORT": "6174",
        "PADDLE_CURRENT_ENDPOINT": "127.0.0.2:6174",
        "PADDLE_TRAINERS": "2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_NUM_TRAINERS": "2",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:7000,127.0.0.1:7001",
    }
    trainer = TWO_AND_TWO.environment(TWO_AND_TWO.members()[2])
    assert (trainer["TRAINING_ROLE"], trainer["PADDLE_TRAINER_ID"]) == ("TRAINER", "0")
    # Fluid 1.5 pairs PADDLE_PSERVERS with it, on trainers too.
    assert (trainer["PADDLE_PORT"], trainer["PADDLE_CURRENT_ENDPOINT"]) == ("6174", "127.0.0.1:7000")


def test_servers_with_different_ports_leave_out_what_knows_only_one():
    placement = Placement(("127.0.0.1:6174", "127.0.0.1:6175"), ("127.0.0.1:7000",))
    variables = placement.environment(placement.members()[0])
    assert "PADDLE_PSERVER_IPS" not in variables and "PADDLE_PSERVER_PORT" not in variables


def test_members_of_a_collective_job_have_no_role():
    placement = Placement((), ("127.0.0.1:7000",))
    assert not [name for name in placement.environment(placement.members()[0]) if "ROLE" in name or "PSERVER" in name]


def test_processes_are_spread_over_nodes_in_order():
    assert spread(3, ["a", "b"], 6170) == ("a:6170", "a:6171", "b:6170")


@pytest.mark.parametrize("text", ["6174", "host:", ":6174", "host:http", "host:0", "host:65536"])
def test_what_is_no_endpoint_is_refused(text):
    with pytest.raises(ValueError, match="invalid endpoint .*; expected HOST:PORT"):
        split_endpoint(text)
