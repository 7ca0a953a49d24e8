"""What N servers and M trainers need for a table of any size: memory, processor time, network, seconds of a snapshot.

Sizes follow from the shipped code; times are multiples of `Costs`, which `costs.py` measures on a machine.
"""

import json
from dataclasses import asdict, dataclass, field

from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.kernels.layout import MOST_ROWS
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import OPTIMIZERS

SEGMENTS = 4  # of a table on a server
FULLEST, SMALLEST = 0.8, 2048  # of an index: the share of its entries that is used, and its first entries
FLOAT, ID = 4, 8  # bytes on the wire
MESSAGES = 2  # per step and server: a lookup, and a push that brings the parameters back


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time, but for the last three, which are seconds and bytes per second of a clock.

    ``*_row`` is for a row that is looked up and updated, ``*_value`` for each of its weights.
    """

    trainer_step: float  # a step of a small model, without its messages
    trainer_message: float
    trainer_row: float
    trainer_value: float
    server_message: float
    server_row: float
    server_value: float
    saved_row: float  # of a snapshot
    saved_byte: float
    latency: float  # of a message, beyond the processor time of both sides
    disk: float  # bytes per second that reach files

    def to_json(self):
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls(**json.load(file))


@dataclass(frozen=True)
class Host:
    """A machine: its cores, bytes of memory, and bytes per second of its network in each direction."""

    cores: int = 2
    memory: float = 24e9
    network: float = 1.25e9  # 10 Gbit/s
    delay: float = 50e-6  # seconds that a message is on its way


@dataclass(frozen=True)
class Job:
    """A table, and what a trainer does in a step. Servers have hosts of their own; so have trainers.

    Attributes:
      batch_rows: different ids of a trainer's batch.
      compute: seconds of a trainer's step without its messages and rows.
      per_host: servers that share a host.
    """

    rows: float
    servers: int
    trainers: int
    width: int = 8
    optimizer: str = "sgd"
    precision: str = "native"
    batch_rows: int = 10000
    compute: float = 0.02
    sync: bool = False
    per_host: int = 1
    server_host: Host = field(default_factory=Host)
    trainer_host: Host = field(default_factory=Host)

    @property
    def form(self):
        return RecordForm(self.width, slots=OPTIMIZERS[self.optimizer].states, precision=self.precision)

    @property
    def shares(self):
        """The part of all rows that each server has: a whole number of shards."""
        bounds = [SHARDS * server // self.servers for server in range(self.servers + 1)]
        return [(end - begin) / SHARDS for begin, end in zip(bounds, bounds[1:])]


def index_bytes(rows):
    """The index of a segment: 4 bytes for each of a power of two entries, of which so many rows use at most 0.8."""
    entries = SMALLEST
    while rows + 1 > FULLEST * entries:
        entries *= 2
    return 4 * entries


def memory_of(rows, form):
    """Bytes of so many rows on one server: records, a byte of marks for each, and the indexes."""
    return rows * (form.bytes + 1) + SEGMENTS * index_bytes(rows / SEGMENTS)


def server_memory(job):
    """Bytes of rows on the server that has most, and on the way from it and to it: messages of all trainers."""
    share = max(job.shares)
    messages = job.trainers * sum(message_bytes(job, share))
    return memory_of(job.rows * share, job.form) + messages


def message_bytes(job, share):
    """Bytes to a server that has a share of the rows, and from it, in a step: ids twice, gradients; weights."""
    rows = job.batch_rows * share
    return rows * (2 * ID + job.width * FLOAT), rows * job.width * FLOAT


def trainer_seconds(job, costs):
    """Processor seconds of a trainer's step."""
    per_row = costs.trainer_row + job.width * costs.trainer_value
    messages = MESSAGES * job.servers * costs.trainer_message
    return costs.trainer_step + job.compute + messages + job.batch_rows * per_row


def server_seconds(job, costs, share):
    """Processor seconds that a step of one trainer takes a server."""
    per_row = costs.server_row + job.width * costs.server_value
    return MESSAGES * costs.server_message + job.batch_rows * share * per_row


def limits(job, costs):
    """Steps per second, over all trainers, that each resource allows."""
    share = max(job.shares)
    to, back = message_bytes(job, share)
    serving, training = server_seconds(job, costs, share), trainer_seconds(job, costs)
    per_core = serving * max(1.0, job.per_host / job.server_host.cores)
    turn = training + serving + MESSAGES * 2 * (costs.latency + job.server_host.delay)
    return {
        "trainers": job.trainers / turn,
        "servers": 1 / per_core,
        "network of servers": job.server_host.network / (max(to, back) * job.per_host),
        "network of trainers": job.trainers * job.trainer_host.network / (max(to, back) / share),
    }


def snapshot_seconds(job, costs, touched=1.0):
    """Seconds in which every server writes its rows, or the share that was touched."""
    rows = job.rows * max(job.shares)
    written = rows * touched * job.form.bytes
    busy = rows * touched * costs.saved_row + written * costs.saved_byte
    return max(busy, written * job.per_host / costs.disk)


def obstacles(job):
    """What this job cannot have, in words."""
    found, needed = [], server_memory(job) * job.per_host
    if job.servers > SHARDS:
        found.append("more servers than the %d shards of a table" % SHARDS)
    if job.rows * max(job.shares) > SEGMENTS * MOST_ROWS:
        found.append("more than %.1f thousand million rows on a server" % (SEGMENTS * MOST_ROWS / 1e9))
    if needed > 0.9 * job.server_host.memory:
        found.append("%.0f GB on a host of servers" % (needed / 1e9))
    return found
