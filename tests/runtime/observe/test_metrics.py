import math
import threading
import urllib.error
import urllib.request

import pytest

from refluid.runtime.observe.metrics import Endpoint, Histogram, Metrics, serve_if_asked


def test_the_text_form_names_kind_labels_and_value():
    metrics = Metrics(role="server", endpoint="127.0.0.1:6174")
    metrics.counter("pushes_total", "Pushes received", trainer=0).add()
    metrics.counter("pushes_total", trainer=1).add(2.5)
    metrics.gauge("round", "Rounds applied").set(7)

    assert metrics.text() == (
        "# HELP refluid_pushes_total Pushes received\n"
        "# TYPE refluid_pushes_total counter\n"
        'refluid_pushes_total{role="server",endpoint="127.0.0.1:6174",trainer="0"} 1\n'
        'refluid_pushes_total{role="server",endpoint="127.0.0.1:6174",trainer="1"} 2.5\n'
        "# HELP refluid_round Rounds applied\n"
        "# TYPE refluid_round gauge\n"
        'refluid_round{role="server",endpoint="127.0.0.1:6174"} 7\n'
    )


def test_the_same_name_and_labels_are_the_same_metric():
    metrics = Metrics()
    assert metrics.counter("bytes_total", way="in") is metrics.counter("bytes_total", way="in")
    assert metrics.counter("bytes_total", way="in") is not metrics.counter("bytes_total", way="out")


def test_a_name_has_one_kind():
    metrics = Metrics()
    metrics.counter("round")
    with pytest.raises(ValueError, match="metric round is a counter, not a gauge"):
        metrics.gauge("round")


def test_label_values_are_escaped():
    metrics = Metrics()
    metrics.gauge("x", path='a"b\\c\nd').set(1)
    assert 'x{path="a\\"b\\\\c\\nd"} 1' in metrics.text()


def test_a_gauge_may_read_its_value_when_asked():
    queue = [1, 2, 3]
    metrics = Metrics()
    gauge = metrics.gauge("queue_depth", read=lambda: len(queue))
    queue.append(4)
    assert gauge.value == 4
    assert "refluid_queue_depth 4\n" in metrics.text()


def test_quantiles_are_of_the_recent_observations_and_the_sum_of_all():
    histogram = Histogram(window=100)
    for value in range(1000, 0, -1):  # ends with 100 .. 1
        histogram.observe(value)
    assert (histogram.quantile(0.5), histogram.quantile(0.99), histogram.quantile(0)) == (50, 99, 1)
    assert (histogram.count, histogram.sum) == (1000, 500500)


def test_a_histogram_without_observations_has_no_quantiles():
    assert math.isnan(Histogram().quantile(0.5))
    metrics = Metrics()
    metrics.histogram("wait_seconds")
    assert 'refluid_wait_seconds{quantile="0.5"} NaN\n' in metrics.text()
    assert "refluid_wait_seconds_count 0\n" in metrics.text()


def test_a_forgotten_metric_is_gone():
    metrics = Metrics()
    metrics.gauge("last_seen_seconds", trainer=3).set(1)
    metrics.forget("last_seen_seconds", trainer=3)
    assert "trainer" not in metrics.text()


def test_nothing_is_lost_between_threads():
    metrics = Metrics()
    counter, histogram = metrics.counter("pushes_total"), metrics.histogram("seconds")

    def record():
        for _ in range(5000):
            counter.add()
            histogram.observe(1.0)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counter.value, histogram.count, histogram.sum) == (20000, 20000, 20000.0)


def fetch(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_endpoint_serves_the_text_and_nothing_else():
    metrics = Metrics()
    metrics.counter("pushes_total").add(3)
    endpoint = Endpoint(metrics, 0, "127.0.0.1")
    try:
        kind, text = fetch(endpoint.port)
        assert kind.startswith("text/plain; version=0.0.4")
        assert "refluid_pushes_total 3\n" in text
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            fetch(endpoint.port, "/secrets")
        caught.value.close()
    finally:
        endpoint.close()
    with pytest.raises(urllib.error.URLError):
        fetch(endpoint.port)


def test_the_endpoint_is_started_by_its_variable_only(monkeypatch, capsys):
    monkeypatch.delenv("REFLUID_METRICS_PORT", raising=False)
    assert serve_if_asked(Metrics(), "server 127.0.0.1:1") is None

    monkeypatch.setenv("REFLUID_METRICS_PORT", "0")
    endpoint = serve_if_asked(Metrics(), "server 127.0.0.1:1")
    assert endpoint is not None
    try:
        assert f"server 127.0.0.1:1: metrics on port {endpoint.port}" in capsys.readouterr().err
        fetch(endpoint.port)
        monkeypatch.setenv("REFLUID_METRICS_PORT", str(endpoint.port))
        assert serve_if_asked(Metrics(), "trainer 0") is None
        assert f"trainer 0: no metrics, port {endpoint.port} cannot be used" in capsys.readouterr().err
    finally:
        endpoint.close()


def test_a_port_that_is_no_port_is_an_error(monkeypatch):
    monkeypatch.setenv("REFLUID_METRICS_PORT", "many")
    with pytest.raises(ValueError, match="REFLUID_METRICS_PORT is 'many'; expected a port"):
        serve_if_asked(Metrics(), "trainer 0")
