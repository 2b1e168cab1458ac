"""The targets of ``fuzz``, driven by Hypothesis: for a few seconds here, for longer in the slow tests, and with atheris
by ``make fuzz``."""

from __future__ import annotations

import resource
import time
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.run import STORAGE
from fuzz.targets import TARGETS, seal, seeds
from radiator.storage.format import decode
from radiator.storage.header import DamagedBatch, UnknownVersion
from radiator.storage.segment import Window, find_batch, whole_batches
from tests.storage.faults import FaultyFileSystem

SEEDS = seeds()
assert set(STORAGE) == set(TARGETS) == set(SEEDS)


def mutated(random: Random, data: bytes) -> bytes:
    """A few changes: bytes, numbers at the ends of their range, stretches cut, doubled or moved."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(changed) + 1)
        how = random.randrange(5)
        if how == 0 and at < len(changed):
            changed[at] = random.randrange(256)
        elif how == 1:
            changed[at : at + 4] = random.choice([0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 64, 1 << 20]).to_bytes(
                4, "little"
            )
        elif how == 2:
            del changed[at : at + random.randrange(40)]
        elif how == 3:
            changed[at:at] = changed[: random.randrange(len(changed) + 1)]
        else:
            changed[at:at] = random.randbytes(random.randrange(16))
    return bytes(changed[:20_000])


@pytest.mark.parametrize("name", TARGETS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.binary(max_size=600))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", [300, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TARGETS)
def test_what_was_whole_and_has_changed(name: str, rounds: int) -> None:
    random = Random(rounds)
    for _ in range(rounds):
        data = mutated(random, random.choice(SEEDS[name]))
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"{name} broke on {data.hex()}") from error


def test_a_decoder_takes_no_more_memory_than_its_input_deserves() -> None:
    """Lengths that claim gigabytes are compared with what is there before anything is made."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    random = Random(1)
    for _ in range(2_000):
        data = bytearray(random.choice(SEEDS["batch"]))
        at = random.choice([8, 40, 48, 52, 56])
        data[at : at + 4] = random.randrange(1 << 32).to_bytes(4, "little")
        try:
            decode(seal(bytes(data)))
        except (DamagedBatch, UnknownVersion):
            pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_the_way_through_damage_takes_time_in_proportion_to_the_bytes() -> None:
    """Every second batch damaged: twice the bytes are at most some three times the calls."""

    class Counted(FaultyFileSystem):
        read = 0

        def pread(self, fd: int, size: int, position: int) -> bytes:
            data = super().pread(fd, size, position)
            self.read += len(data)
            return data

    def cost(batches: int) -> int:
        from radiator.storage.format import encode_batch

        fs = Counted()
        fd = fs.open("/segment", create=True)
        at = 0
        for offset in range(batches):
            pieces = encode_batch(offset, [offset], None, None, [0], ["q"], [b"h"], [b"x" * 100], salt=7)
            data = bytearray(b"".join(pieces))
            data[-1] ^= offset & 1
            at += fs.pwritev(fd, [data], at)
        fs.read = 0
        found = list(whole_batches(Window(fs, fd, 64 * 1024, "/segment"), 0, at, 0))  # type: ignore[arg-type]
        assert len(found) == batches // 2
        return fs.read

    assert cost(2_000) < 3 * cost(1_000)


def test_what_clients_made_up_costs_a_look_and_no_more() -> None:
    """A search through headers that claim to be followed by megabytes."""
    fs = FaultyFileSystem()
    fd = fs.open("/segment", create=True)
    first = b"".join(SEEDS["batch"][0:1])
    made_up = bytearray(SEEDS["batch"][1])
    made_up[60:64] = b"\1\2\3\4"
    size = fs.pwritev(fd, [first, bytes(8), bytes(made_up) * 2_000], 0)
    window = Window(fs, fd, 64 * 1024, "/segment")  # type: ignore[arg-type]
    begin = time.process_time()
    assert find_batch(window, len(first), size, 0) is None
    assert time.process_time() - begin < 60, "a hang, not a measurement"
