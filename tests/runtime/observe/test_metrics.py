import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import generate_latest

from refluid.log import Log
from refluid.runtime.observe.metrics import Endpoint, Metrics, quantiles, value_of

LOG = Log("server", endpoint="127.0.0.1:1")


def text(metrics):
    return generate_latest(metrics.registry).decode()


def test_every_sample_has_the_labels_of_its_process():
    metrics = Metrics(LOG, role="server", endpoint="127.0.0.1:6174")
    metrics.counter("pushes_total", "Pushes received").inc(2)
    metrics.gauge("round", "Updates applied", lambda: 7)
    metrics.gauges("steps", "Steps", "trainer", {"0": lambda: 3, "1": lambda: 4})

    found = text(metrics)
    for line in (
        "# TYPE refluid_pushes_total counter",
        'refluid_pushes_total{endpoint="127.0.0.1:6174",role="server"} 2.0',
        'refluid_round{endpoint="127.0.0.1:6174",role="server"} 7.0',
        'refluid_steps{endpoint="127.0.0.1:6174",role="server",trainer="1"} 4.0',
    ):
        assert f"{line}\n" in found


def test_two_servers_of_one_process_count_apart():
    one, other = Metrics(LOG, role="server"), Metrics(LOG, role="server")
    first, second = one.counter("pushes_total", "Pushes"), other.counter("pushes_total", "Pushes")
    first.inc(5)

    assert (value_of(first), value_of(second)) == (5, 0)


def test_a_gauge_is_read_with_every_scrape():
    queue = [1, 2, 3]
    metrics = Metrics(LOG, role="server")
    metrics.gauge("queue_depth", "Queued", lambda: len(queue))
    queue.append(4)
    assert 'refluid_queue_depth{role="server"} 4.0\n' in text(metrics)


def test_histograms_of_servers_can_be_added_up():
    found = []
    for _ in range(2):
        metrics = Metrics(LOG, role="server")
        seconds = metrics.histogram("exchange_seconds", "Exchanges")
        for value in (0.0003, 0.004, 0.004, 70.0):
            seconds.observe(value)
        found.append(text(metrics))

    assert found[0].splitlines()[2:4] == found[1].splitlines()[2:4]
    assert 'refluid_exchange_seconds_bucket{le="0.0005",role="server"} 1.0\n' in found[0]
    assert 'refluid_exchange_seconds_bucket{le="0.005",role="server"} 3.0\n' in found[0]
    assert 'refluid_exchange_seconds_bucket{le="+Inf",role="server"} 4.0\n' in found[0]


def test_quantiles_are_interpolated_within_their_bucket():
    seconds = Metrics(LOG, role="server").histogram("seconds", "Seconds")
    assert quantiles(seconds) is None, "nothing was observed"
    for _ in range(100):
        seconds.observe(0.0015)  # between 1 and 2 ms
    assert quantiles(seconds) == {"p50": pytest.approx(0.0015), "p99": pytest.approx(0.00199)}
    for _ in range(300):
        seconds.observe(1000.0)
    assert quantiles(seconds)["p99"] == 50.0, "more than the largest bound is known by that bound only"


def test_nothing_is_lost_between_threads():
    metrics = Metrics(LOG, role="server")
    counter, seconds = metrics.counter("pushes_total", "Pushes"), metrics.histogram("seconds", "Seconds")

    def record():
        for _ in range(2000):
            counter.inc()
            seconds.observe(1.0)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value_of(counter) == 8000
    for name in ("count", "sum"):
        assert f'refluid_seconds_{name}{{role="server"}} 8000.0\n' in text(metrics)


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def test_the_endpoint_serves_the_registry_until_it_is_closed():
    metrics = Metrics(LOG, role="server")
    metrics.counter("pushes_total", "Pushes").inc(3)
    endpoint = Endpoint(metrics.registry, 0)
    try:
        kind, found = fetch(endpoint.port)
        assert kind.startswith("text/plain; version=")
        assert 'refluid_pushes_total{role="server"} 3.0\n' in found
    finally:
        endpoint.close()
    with pytest.raises(urllib.error.URLError):
        fetch(endpoint.port)


def test_the_endpoint_is_started_by_its_variable_only(monkeypatch, caplog):
    caplog.set_level("INFO", "refluid")
    monkeypatch.delenv("REFLUID_METRICS_PORT", raising=False)
    assert Metrics(LOG, role="server").serve() is None

    monkeypatch.setenv("REFLUID_METRICS_PORT", "0")
    endpoint = Metrics(LOG, role="server").serve()
    assert endpoint is not None
    try:
        assert f'msg="serving metrics" port={endpoint.port}' in caplog.text
        fetch(endpoint.port)
        monkeypatch.setenv("REFLUID_METRICS_PORT", str(endpoint.port))
        assert Metrics(LOG, role="server").serve() is None
        assert f'msg="cannot serve metrics" port={endpoint.port} reason="Address already in use"' in caplog.text
    finally:
        endpoint.close()


def test_a_port_that_is_no_port_is_an_error(monkeypatch):
    monkeypatch.setenv("REFLUID_METRICS_PORT", "many")
    with pytest.raises(ValueError, match="REFLUID_METRICS_PORT is 'many'; expected a port"):
        Metrics(LOG, role="server").serve()


def test_metrics_are_for_this_machine_unless_another_address_is_given(monkeypatch):
    monkeypatch.setenv("REFLUID_METRICS_PORT", "0")
    for host in (None, "127.0.0.2", "0.0.0.0"):
        if host is not None:
            monkeypatch.setenv("REFLUID_METRICS_HOST", host)
        endpoint = Metrics(LOG, role="server").serve()
        try:
            assert endpoint._server.server_address[0] == (host or "127.0.0.1")
        finally:
            endpoint.close()
