"""Three trainers, real processes, shuffle their data; then one of them is killed while they do."""

import json

import pytest

from cluster import shuffle_job
from cluster.jobs import Jobs, free_endpoints

TRAINERS = 3


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """What the trainers that were not killed have seen, and the output of all."""
    folder = tmp_path_factory.mktemp("job")
    jobs, endpoints = Jobs(folder), ",".join(free_endpoints(TRAINERS))
    try:
        started = [
            jobs.start(f"trainer{i}", shuffle_job.__file__, i, endpoints, folder, REFLUID_LOG="info")
            for i in range(TRAINERS)
        ]
        started[-1].finish(code=-9)
        jobs.finish(started[:-1])
        seen = [json.loads((folder / f"{i}.json").read_text()) for i in range(TRAINERS - 1)]
        return seen, [process.output for process in started]
    finally:
        jobs.end()


def test_every_record_is_somewhere_once(job):
    seen, _ = job
    everything = {
        text
        for trainer in range(TRAINERS)
        for number in range(shuffle_job.BLOCKS)
        for text in shuffle_job.texts(trainer, number)
    }
    found = [text for each in seen for text in each["shuffled"]]
    sizes = [int(size) for size in seen[0]["sizes"]]
    assert len(set(found)) == len(found) and set(found) < everything
    assert sum(sizes) == len(everything), "the third trainer has what the first two have not"
    assert seen[1]["sizes"] == seen[0]["sizes"] and [len(each["shuffled"]) for each in seen] == sizes[:2]
    assert all({text[0] for text in each["shuffled"]} == {"0", "1", "2"} for each in seen), "of every trainer"


def test_the_log_says_how_many_records_there_are(job):
    records = TRAINERS * shuffle_job.BLOCKS * shuffle_job.ROWS
    assert all(f"msg=shuffled records={records}" in output for output in job[1])


def test_a_trainer_that_is_killed_is_named_by_all_others(job):
    seen, _ = job
    assert all("error" in each for each in seen)
    assert all("trainer 2 at 127.0.0.1" in each["error"] for each in seen), seen
    assert any("it has ended or cannot be reached" in each["error"] for each in seen)
