"""Different selectors that look at the same records: they share what is found, and answer as each alone would."""

from __future__ import annotations

from random import Random

import pytest

from radiator.broker.logs.selection import YES, Selection
from radiator.routing.selector import compile_selector
from tests.broker.harness import World

COLOURS = ["red", "blue", "", "1", "true", "it''s"]


def selector(random: Random) -> str:
    def one() -> str:
        name, text = random.choice(["colour", "size", "missing", "offset"]), random.choice(COLOURS)
        return random.choice(
            [
                f"{name} = '{text}'",
                f"'{text}' = {name}",
                f"{name} = {random.randrange(3)}",
                f"{name} <> '{text}'",
                f"NOT {name} = '{text}'",
                f"{name} IS NULL",
                f"{name} LIKE '%e%'",
                f"({name} = '{text}' OR size > 1)",
                f"({name} = '{text}' AND size > 0)",
            ]
        )

    return random.choice([" AND ", " AND ", " OR "]).join(one() for _ in range(random.randrange(1, 4)))


@pytest.mark.parametrize("seed", range(20))
def test_each_selector_answers_as_it_would_alone_whichever_is_evaluated_first(seed: int) -> None:
    random, world = Random(seed), World()
    client = world.connect()
    rows: list[dict[str, str]] = []
    for offset in range(40):
        headers = {name: random.choice(COLOURS[:5]) for name in ("colour", "size") if random.random() < 0.8}
        client.publish("/queue/a", "x", **headers)
        rows.append({**headers, "offset": str(offset)})
    world.settle()
    feed = world.broker.destinations["/queue/a"].feeds[0]
    batches = {id(batch): batch for offset in range(40) if (batch := feed.partition.read(offset)) is not None}
    assert sum(map(len, batches.values())) == 40
    for text in [selector(random) for _ in range(60)]:
        plain = compile_selector(text)
        for batch in batches.values():
            stop = random.randrange(len(batch)) + 1
            for start, end in ((0, stop), (stop, len(batch)), (0, len(batch))):
                found = Selection(text).verdicts(feed.wire, batch, start, end)[start:end]
                wanted = [
                    plain.test([rows[offset].get(name) for name in plain.names]) is True
                    for offset in batch.offsets[start:end]
                ]
                assert [verdict == YES for verdict in found] == wanted, text


def test_one_that_needs_a_value_is_asked_only_of_records_that_have_it() -> None:
    world = World()
    client = world.connect()
    for number in range(100):
        client.publish("/queue/a", "x", colour=f"c{number}")
    takers = [world.connect() for _ in range(50)]
    for number, taker in enumerate(takers):
        taker.subscribe("/queue/a", selector=f"size IS NULL AND colour = 'c{2 * number}'")
    before = Selection.spent_chars
    world.settle()
    looked_at = Selection.spent_chars - before
    assert [taker.bodies() for taker in takers] == [["x"]] * 50
    assert looked_at < 20 * 50 * len("size IS NULL AND colour = 'c00'")
