"""What the history costs: the size of a year of a large node, the time of a query, a save and a sample, and CPU.

The file is filled as a daemon would, save by save, with 64 devices and 500 slices whose use, waits and memory change at
random with every point: the worst case for the compression. Queries are made as the daemon makes them, each of the four
ranges of series that are chosen at random. Processor time is that of samples and saves,
without reading the arbiters' counters.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.core.history.fold import Folded
from vgpud.core.history.levels import LEVELS, SAMPLE_S, SAVE_S, choose
from vgpud.core.history.points import Point
from vgpud.core.history.sampling import DeviceNow, QueueBounds, Sampler
from vgpud.core.history.unsaved import Series, Unsaved
from vgpud.core.model import Share, Slice, Spec
from vgpud.core.observed import SliceStats
from vgpud.core.origins import User
from vgpud.store.history import FILE_NAME, HistoryFile

DEVICES, SLICES, USERS, QUEUES = 64, 500, 50, 20
NOW_S = 1_800_000_000
RANGES_S = {"hour": 3600, "day": 86_400, "week": 604_800, "year": 31_536_000}
QUERIES = 15
SAVES = 4
GIB = 1 << 30
DEVICE_BYTES = 141 * GIB
GOAL_MB = 300.0
GOAL_QUERY_MS = 100.0
GOAL_CPU_PERCENT = 0.5


def make_points(index: int, slots: range, noise: random.Random) -> dict[tuple[int, int], Point]:
    """A chunk of random use by a slice of a quarter."""
    samples = LEVELS[index].step_s // SAMPLE_S
    found = {}
    for slot in slots:
        used, memory = noise.random() * 500, noise.random() * DEVICE_BYTES / 4
        peaks = used + noise.random() * 100, memory + noise.random() * GIB
        found[index, slot] = Point(
            samples, used, peaks[0], 250, 500, noise.random() * 1000, memory, peaks[1], DEVICE_BYTES / 4
        )
    return found


def fill(file: HistoryFile, series: int, noise: random.Random) -> None:
    """A year, a week and an hour until now, a chunk of every series with each save."""
    for index in reversed(range(len(LEVELS))):
        level = LEVELS[index]
        last = NOW_S // level.chunk_s
        for chunk in range(last - level.chunks_max + 1, last + 1):
            slots = range(chunk * level.chunk_points, (chunk + 1) * level.chunk_points)
            file.save(
                {
                    ("slice", f"uid-{n}"): Series(f"slice-{n}", 1000 + n % USERS, make_points(index, slots, noise))
                    for n in range(series)
                }
            )


def query(file: HistoryFile, name: str, range_s: int) -> int:
    """The points of an answer."""
    since_s = NOW_S - range_s
    index, step_s = choose(since_s, NOW_S, 0, NOW_S)
    folded = Folded(LEVELS[index].step_s, step_s, since_s, NOW_S)
    found = file.find("slice", name, None)
    assert found
    file.read(found.series, index, since_s, NOW_S, folded)
    return len(folded.points())


def measure_ms(work: Callable[[], object]) -> float:
    began_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began_ns) / 1e6


def measure_queries(file: HistoryFile, series: int, noise: random.Random) -> dict[str, dict[str, float]]:
    found = {}
    for name, range_s in RANGES_S.items():
        names = [f"slice-{noise.randrange(series)}" for _ in range(QUERIES)]
        points = query(file, names[0], range_s)
        times = [measure_ms(lambda n=name_, r=range_s: query(file, n, r)) for name_ in names]  # type: ignore[misc]
        found[name] = {"p50_ms": round(statistics.median(times), 2), "max_ms": round(max(times), 2), "points": points}
    return found


def make_slices(noise: random.Random) -> Iterator[tuple[Slice, list[SliceStats]]]:
    for n in range(SLICES):
        share = Share(f"GPU-{n % DEVICES}", 100, 200, 8 * GIB, 16 * GIB)
        names = {"uid": f"uid-{n}", "queue": f"queue-{n % QUEUES}", "owner_uid": 1000 + n % USERS}
        made = Slice(User(f"slice-{n}"), serial=n, spec=Spec(100), shares=(share,), created_wall_ns=0, **names)  # type: ignore[arg-type]
        yield made, [SliceStats(share_10s_ratio=noise.random(), mem_used_bytes=noise.randrange(16 * GIB))]


def measure_recording(file: HistoryFile, noise: random.Random) -> dict[str, float]:
    """Samples and saves of so many five minutes, with the processor time of both."""
    sampler, unsaved = Sampler(), Unsaved()
    queues = [QueueBounds(f"queue-{n}", "", 0, 0) for n in range(QUEUES)]
    devices = [DeviceNow(f"GPU-{n}", n, 0.5, 60 * GIB, DEVICE_BYTES) for n in range(DEVICES)]
    slices = list(make_slices(noise))
    samples_ms, saves_ms = [], []
    began_s = time.process_time()
    steps = SAVE_S // SAMPLE_S
    for n in range(SAVES * steps):
        at_s = NOW_S + n * SAMPLE_S

        def sample(at_s: int = at_s) -> None:
            unsaved.add(at_s, sampler.take(at_s * 10**9, devices, slices, queues))

        samples_ms.append(measure_ms(sample))
        if n % steps == steps - 1:
            saves_ms.append(measure_ms(lambda: file.save(unsaved.take())))
    spent_s = time.process_time() - began_s
    return {
        "sample_max_ms": round(max(samples_ms), 2),
        "save_p50_ms": round(statistics.median(saves_ms), 1),
        "cpu_percent": round(100 * spent_s / (SAVES * SAVE_S), 3),
    }


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--series", type=int, default=DEVICES + SLICES, help="series in the file (default: %(default)s)"
    )
    options = parser.parse_args()
    noise = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        file = HistoryFile(Path(folder), bytes_max=10**12)
        fill(file, options.series, noise)
        file.close()
        size_mb = (Path(folder) / FILE_NAME).stat().st_size / 1e6
        queries = measure_queries(file, options.series, noise)
        recording = measure_recording(file, noise)
        file.close()
    figures: dict[str, Any] = {"size_mb": round(size_mb, 1)}
    figures |= {f"query_{name}_max_ms": one["max_ms"] for name, one in queries.items()} | recording
    print(f"the history, {options.series} series for a year")
    good = [
        judge("size of the file, MB", figures["size_mb"], at_most(GOAL_MB)),
        *(judge(f"a query of a {n}, longest, ms", one["max_ms"], at_most(GOAL_QUERY_MS)) for n, one in queries.items()),
        judge("processor time of recording, percent of a core", recording["cpu_percent"], at_most(GOAL_CPU_PERCENT)),
    ]
    path = results.write(
        "history",
        is_simulated=True,
        device="SIMULATED, none is used",
        parameters={"series": options.series, "devices": DEVICES, "slices": SLICES, "queries": QUERIES},
        goals={"size_mb": GOAL_MB, "query_max_ms": GOAL_QUERY_MS, "cpu_percent": GOAL_CPU_PERCENT},
        figures=figures,
        raw={"queries": queries},
        folder=options.results,
    )
    print(path)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
