"""Jobs of several processes."""

import pytest

from cluster.jobs import Jobs


@pytest.fixture
def jobs(tmp_path):
    """Starts processes, and ends those that are left when the test is over."""
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.end()
