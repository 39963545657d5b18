"""How many bytes a hold takes on the wire, compressed and not.

`python -m tests.bench.bench_record_size` prints it.

The holds are random, so that they compress no better than real ones: begin, length and CPU time
have all their nanoseconds.
"""

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from greenscope.model import Code, CodeOrigin, Frame, Hold, HoldPiece, Stack
from greenscope.records.decode import decode_batch
from greenscope.records.encode import BatchEncoder

AIM_BYTES = 12


@dataclass(frozen=True)
class Workload:
    name: str
    stacks: int
    greenlets: int
    waiting_part: float  # of the holds that wait in a system call; the others compute


WORKLOADS = (
    Workload("one guilty line", stacks=1, greenlets=50, waiting_part=0.0),
    Workload("web server", stacks=8, greenlets=50, waiting_part=0.3),
    Workload("everything blocks", stacks=40, greenlets=1000, waiting_part=0.5),
)


def stack(number: int) -> Stack:
    def frame(depth: int) -> Frame:
        file = f"/srv/shop/package{depth % 5}/module{number}.py"
        return Frame(Code(f"function_{depth}", file, 10, CodeOrigin.APPLICATION), 10 + depth)

    return Stack(tuple(frame(depth) for depth in range(20)))


def holds(workload: Workload, count: int) -> Iterator[Hold]:
    source = random.Random(1)
    stacks = [stack(number) for number in range(workload.stacks)]
    now_ns = 10**15
    for _ in range(count):
        now_ns += int(source.expovariate(1 / 20e6))
        duration_ns = int(10e6 + source.expovariate(1 / 15e6))
        at = source.choice(stacks)
        pieces = (HoldPiece(at, "cpu", duration_ns, duration_ns // 5_000_000),)
        on_cpu_ns = duration_ns
        if source.random() < workload.waiting_part:
            on_cpu_ns = min(duration_ns, int(source.expovariate(1 / 2e5)))
            pieces = (HoldPiece(at, "syscall:recvfrom", duration_ns, 1),)
        greenlet_id = source.randrange(workload.greenlets)
        flags = False, False, False
        yield Hold(4711, greenlet_id, now_ns, duration_ns, on_cpu_ns, *flags, pieces)
        now_ns += duration_ns


def measure(workload: Workload, count: int) -> tuple[float, float, float]:
    """Bytes per hold before and after compression, and microseconds to encode one."""
    records = list(holds(workload, count))
    encoder = BatchEncoder()
    began = time.perf_counter()
    for record in records:
        encoder.add(record)
    raw_bytes = encoder.size_bytes
    batch = encoder.finish()
    elapsed_us = (time.perf_counter() - began) * 1e6
    assert decode_batch(batch).records == tuple(records)
    return raw_bytes / count, len(batch) / count, elapsed_us / count


def main() -> int:
    print(f"{'workload':20} {'holds':>6} {'raw':>6} {'wire':>6} {'encode':>8}   aim {AIM_BYTES} B")
    for workload in WORKLOADS:
        for count in (10, 100, 1000, 10_000):
            raw, wire, encode_us = measure(workload, count)
            print(f"{workload.name:20} {count:6} {raw:6.1f} {wire:6.1f} {encode_us:5.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
