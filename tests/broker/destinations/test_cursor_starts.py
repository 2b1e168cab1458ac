"""Where a queue without a cursor begins: nothing that was receipted is passed over, what is new begins at the end."""

from __future__ import annotations

import pytest

from radiator.config import load_text
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.definitions import encode
from radiator.storage.last_rules import HEAD
from tests.broker.destinations.test_fan_out import all_of, under
from tests.broker.harness import World
from tests.broker.queues.test_queue import fill

TOPIC, NEW = "/topic/t", "/queue/t.new"
ONE_LOG = """
destinations:
  - {match: /queue/f, fan_out: [/queue/f.a, /queue/f.b], partition: mixed}
  - {match: "/queue/f.*,/queue/aa,/queue/in", partition: mixed}
"""
NOTHING = "destinations: [{match: /queue/zz}]"
FED = "destinations: [{match: '/topic/*', fan_out: ['/queue/{1}.new']}]"
SEPARATE = "destinations: [{match: '/queue/>', partition: all}]"
JOINED = """
destinations:
  - {match: /queue/f, partition: all, fan_out: [/queue/f.a]}
  - {match: '/queue/>', partition: all}
"""
LAST = layout.last_rules_path("/data")


def lose(world: World, part: str) -> None:
    """These files are gone after a kill; so is the journal, which has the cursors' latest changes."""
    world.fs.kill()
    for path in [each for each in world.fs.nodes if part in each or "/journal/" in each]:
        del world.fs.nodes[path]


# --- cursors that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parent", ["/queue/f", "/queue/zz"])
def test_without_cursors_all_queues_of_a_log_with_bound_queues_begin_at_the_first_message(parent: str) -> None:
    config = ONE_LOG.replace("/queue/f,", f"{parent},")
    world = World(config)
    client = world.connect()
    for name in ("/queue/aa", parent, "/queue/in", "/queue/f.b"):
        client.publish(name, f"to {name}", receipt="1")
    world.settle()
    assert len(client.receipts()) == 4
    lose(world, "/cursors/")
    world.start()
    assert all_of(world, "/queue/aa") == ["to /queue/aa"]
    assert all_of(world, "/queue/in") == ["to /queue/in"]
    assert all_of(world, "/queue/f.a") == [f"to {parent}"]
    assert all_of(world, "/queue/f.b") == [f"to {parent}", "to /queue/f.b"]


def test_a_kill_before_the_cursors_are_stored_loses_nothing() -> None:
    world = World(ONE_LOG)
    client = world.connect()
    for name in ("/queue/f", "/queue/in"):
        client.publish(name, f"to {name}")
    for job in world.take():
        if "Cursor" not in type(job).__name__:
            job.write()
            job.sync()
    world.kill()
    assert all_of(world, "/queue/in") == ["to /queue/in"]
    assert all_of(world, "/queue/f.a") == all_of(world, "/queue/f.b") == ["to /queue/f"]


def test_a_new_bound_queue_that_lost_its_cursor_gets_later_messages_and_may_get_earlier_ones() -> None:
    world = World(NOTHING)
    fill(world, 2, TOPIC)
    under(world, FED)
    client = world.connect()
    client.publish(TOPIC, "since")
    world.settle()
    lose(world, "/cursors/")
    world.start()
    assert all_of(world, NEW) == ["m0", "m1", "since"]


def test_a_source_whose_only_bound_queue_lost_its_cursor_begins_at_the_first_message() -> None:
    world = World(JOINED)
    fill(world, 2, "/queue/f")
    lose(world, "/cursors/")
    world.config = load_text(SEPARATE)
    world.start()
    assert all_of(world, "/queue/f") == ["m0", "m1"]


# --- what is new ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_first_bound_queues_of_a_topic_begin_at_the_end(end: str) -> None:
    world = World(NOTHING)
    fill(world, 3, TOPIC)
    if end == "stop":
        under(world, FED)
    else:
        world.config = load_text(FED)
        world.kill()
    client = world.connect()
    client.publish(TOPIC, "new")
    world.kill()
    assert all_of(world, NEW) == []
    client = world.connect()
    client.publish(TOPIC, "newer")
    world.settle()
    world.kill()
    assert all_of(world, NEW) == ["newer"]


def test_the_cursor_of_a_new_bound_queue_is_stored_before_any_message() -> None:
    world = World(NOTHING)
    fill(world, 3, TOPIC)
    under(world, FED)
    world.power_cut()
    client = world.connect()
    client.publish(TOPIC, "new")
    world.settle()
    assert all_of(world, NEW) == ["new"]


def test_a_queue_in_a_shared_log_that_becomes_a_source_passes_on_its_unsettled_messages() -> None:
    world = World(SEPARATE)
    fill(world, 3, "/queue/f")
    assert all_of(world, "/queue/f.a") == []
    fill(world, 1, "/queue/other")
    under(world, JOINED)
    assert all_of(world, "/queue/f.a") == ["m0", "m1", "m2"]
    world.restart()
    assert all_of(world, "/queue/f.a") == []
    assert all_of(world, "/queue/other") == ["m0"]


def test_two_sources_in_one_log_may_have_the_same_bound_queue() -> None:
    world = World("destinations: [{match: '/queue/p.*', partition: all, fan_out: [/queue/c]}]")
    client = world.connect()
    client.publish("/queue/p.1", "one")
    client.publish("/queue/p.2", "two")
    world.settle()
    assert all_of(world, "/queue/c") == ["one", "two"]
    world.restart()
    client = world.connect()
    client.publish("/queue/p.2", "three")
    assert all_of(world, "/queue/c") == ["three"]


# --- the file of the last run's rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "damaged", "nonsense"])
def test_without_the_last_rules_bound_queues_begin_at_the_first_message(how: str) -> None:
    world = World(NOTHING)
    fill(world, 2, TOPIC)
    world.stop()
    if how == "gone":
        del world.fs.nodes[LAST]
    elif how == "damaged":
        world.fs.nodes[LAST].cache[-2] ^= 1
    else:
        world.fs.nodes[LAST].cache[:] = encode({"0": {}}, HEAD)
    world.config = load_text(FED)
    world.start()
    assert all_of(world, NEW) == ["m0", "m1"]
    world.restart()
    assert all_of(world, NEW) == []


def test_a_start_writes_the_file_only_if_the_rules_say_something_else() -> None:
    world = World(FED)
    node = world.fs.nodes[LAST]
    world.restart()
    assert world.fs.nodes[LAST] is node
    under(world, NOTHING)
    assert world.fs.nodes[LAST] is not node


def test_rules_that_cannot_be_written_down_leave_nothing_that_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(NOTHING)
    fill(world, 2, TOPIC)
    world.stop()
    rename = world.fs.rename

    def refuses(source: str, target: str) -> None:
        if target == LAST:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(world.fs, "rename", refuses)
    world.config = load_text(FED)
    world.start()
    assert not [path for path in world.fs.nodes if "last_rules" in path]
    client = world.connect()
    client.publish(TOPIC, "since")
    world.settle()
    lose(world, "/cursors/")
    world.start()
    assert all_of(world, NEW) == ["m0", "m1", "since"]


def test_a_broker_that_can_neither_write_nor_remove_the_file_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(NOTHING)
    world.stop()

    def refuses(*_: str) -> None:
        raise OSError(30, "Read-only file system")

    for verb in ("rename", "remove"):
        honest = getattr(world.fs, verb)
        monkeypatch.setattr(
            world.fs, verb, lambda *paths, honest=honest: (refuses if "last_rules" in paths[0] else honest)(*paths)
        )
    world.config = load_text(FED)
    with pytest.raises(StorageError, match="last_rules"):
        world.start()
