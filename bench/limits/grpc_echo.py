"""Raw limit of python gRPC on loopback: 20 MB echo and small-message RTT.

The server is a separate process. raw: bytes in, bytes out, no protobuf.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import time
from concurrent import futures

import grpc
import numpy as np

import common

OPTS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/b/Echo":
            return grpc.unary_unary_rpc_method_handler(lambda r, c: r)
        if call.method == "/b/Push":
            return grpc.unary_unary_rpc_method_handler(lambda r, c: b"")
        if call.method == "/b/Stream":
            return grpc.stream_stream_rpc_method_handler(self.stream)

    @staticmethod
    def stream(it, ctx):
        for r in it:
            yield r


def serve():
    s = grpc.server(futures.ThreadPoolExecutor(4), options=OPTS)
    s.add_generic_rpc_handlers((Handler(),))
    print(s.add_insecure_port("127.0.0.1:0"))
    sys.stdout.flush()
    s.start()
    sys.stdin.read()


def med(fn, n):
    t = []
    for _ in range(n):
        a = time.perf_counter()
        fn()
        t.append(time.perf_counter() - a)
    return float(np.median(t))


def main():
    p = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    port = int(p.stdout.readline())
    ch = grpc.insecure_channel("127.0.0.1:%d" % port, options=OPTS)
    echo, push = ch.unary_unary("/b/Echo"), ch.unary_unary("/b/Push")
    big, small = np.random.RandomState(0).bytes(20 << 20), b"x" * 64
    chunk = [big[i : i + (1 << 20)] for i in range(0, len(big), 1 << 20)]
    stream = ch.stream_stream("/b/Stream")
    med(lambda: echo(big), 3)
    t = time.time()
    e, u = med(lambda: echo(big), 15), med(lambda: push(big), 15)
    st = med(lambda: sum(1 for _ in stream(iter(chunk))), 15)
    r = med(lambda: echo(small), 2000)
    k = med(lambda: echo(b"x" * 65536), 500)

    def eight():
        fs = [echo.future(small) for _ in range(8)]
        for f in fs:
            f.result()

    r8 = med(eight, 500)
    common.emit(
        workload="grpc_echo",
        echo_20mb_ms=round(e * 1e3, 2),
        echo_mb_per_s=round(40 / e, 1),
        push_20mb_mb_per_s=round(20 / u, 1),
        stream_1mb_chunks_mb_per_s=round(40 / st, 1),
        rtt_64b_us=round(r * 1e6, 1),
        rtt_64kb_us=round(k * 1e6, 1),
        rtt_8_parallel_64b_us=round(r8 * 1e6, 1),
        wall_s=round(time.time() - t, 1),
    )
    p.stdin.close()
    p.wait()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
