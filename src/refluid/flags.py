"""Fluid's FLAGS_*: global switches, from the environment or set by the script.

Flags for the kernels and allocators of real Fluid are accepted and stored, but have no effect on XLA.
"""

from __future__ import annotations

import os
from typing import Any

# name -> default. A comment says where refluid uses a flag.
_DEFAULTS: dict[str, Any] = {
    "FLAGS_allocator_strategy": "naive_best_fit",
    "FLAGS_benchmark": False,
    "FLAGS_check_nan_inf": False,  # executor: fetched and written values are checked after every step
    "FLAGS_communicator_independent_recv_thread": True,
    "FLAGS_communicator_is_sgd_optimizer": True,
    "FLAGS_communicator_max_lead": -1,  # runtime: steps ahead of the slowest trainer, -1 for any; refluid's own flag
    "FLAGS_communicator_max_merge_var_num": 20,
    "FLAGS_communicator_max_staleness": 0,  # runtime: own steps an async trainer's parameters may lack; refluid's own
    "FLAGS_communicator_merge_sparse_grad": True,
    "FLAGS_communicator_min_send_grad_num_before_recv": 20,
    "FLAGS_communicator_send_queue_size": 20,
    "FLAGS_communicator_send_wait_times": 5,
    "FLAGS_communicator_thread_pool_size": 5,
    "FLAGS_cpu_deterministic": False,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_dataset_skip_malformed_lines": False,  # datasets: skip them and count, instead of an error; refluid's own
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_fast_eager_deletion_mode": True,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_max_inplace_grad_add": 0,
    "FLAGS_max_remote_read_gb": 1.0,  # runtime: how much of a table on servers a trainer reads at once; refluid's
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_rpc_allow_plaintext": False,  # runtime: listen without TLS beyond this machine; refluid's own
    "FLAGS_rpc_deadline": 180000,
    "FLAGS_rpc_endpoints_file": "",  # runtime: where servers are found that have moved; refluid's own
    "FLAGS_rpc_join_secs": 1800.0,  # runtime: how long trainers that never joined are waited for; refluid's own
    "FLAGS_rpc_lost_trainer": "",  # runtime: wait, leave_out or fail; see runtime/server/liveness.py; refluid's own
    "FLAGS_rpc_max_inflight_mb": 0,  # runtime: large messages that a process takes at once; 0: a quarter of the memory
    "FLAGS_rpc_rejoin_secs": 180.0,  # runtime: how long a lost trainer is waited for; refluid's own
    "FLAGS_rpc_retry_times": 3,
    "FLAGS_rpc_save_folders": "",  # runtime: where servers may write for trainers; refluid's, as all that follow
    "FLAGS_rpc_server_log": "",  # runtime: a folder for logs of updates, by which servers lose none
    "FLAGS_rpc_server_log_mb": 1024,  # runtime: size of a log that a snapshot replaces
    "FLAGS_rpc_server_log_sync": True,  # runtime: logs survive the machine, not only the process
    "FLAGS_rpc_server_snapshots": "",  # runtime: a folder for snapshots that servers restart from
    "FLAGS_rpc_server_snapshot_secs": 60.0,  # runtime: seconds between two snapshots of a server
    "FLAGS_rpc_tls_authority": "",  # runtime: TLS and tokens, see runtime/transport/security.py
    "FLAGS_rpc_tls_certificate": "",
    "FLAGS_rpc_tls_key": "",
    "FLAGS_rpc_tls_name": "",
    "FLAGS_rpc_token": "",
    "FLAGS_rpc_token_file": "",
    "FLAGS_rpc_watchdog_secs": 30.0,  # runtime: seconds without progress until a process says why; 0: never
    "FLAGS_selected_gpus": "",
    "FLAGS_sync_nccl_allreduce": True,
    "FLAGS_worker_update_interval_secs": 30,  # runtime: a trainer that is silent for longer is lost; in Fluid 900
    "FLAGS_use_mkldnn": False,
    "FLAGS_use_ngraph": False,
    "FLAGS_use_pinned_memory": True,
}
_set: dict[str, Any] = {}

# Read on the executor's hot path, hence a plain variable.
check_nan_inf = False


def read_flag(name: str) -> Any:
    """Returns a flag: what the script set, else the environment, else the default."""
    default = _default(name)
    if name in _set:
        return _set[name]
    text = os.environ.get(name)
    return default if text is None else _parse(text, default)


def is_given(name: str) -> bool:
    """Whether the script or the environment sets a flag."""
    return name in _set or name in os.environ


def write_flag(name: str, value: Any) -> None:
    """Sets a flag for this process."""
    default = _default(name)
    _set[name] = _parse(value, default) if isinstance(value, str) else type(default)(value)
    _refresh()


def _refresh() -> None:
    global check_nan_inf
    check_nan_inf = read_flag("FLAGS_check_nan_inf")


def _default(name: str) -> Any:
    if name not in _DEFAULTS:
        raise ValueError(f"unknown flag {name}")
    return _DEFAULTS[name]


def _parse(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return text.lower() in ("1", "true", "yes", "on")
    return type(default)(text)


_refresh()
