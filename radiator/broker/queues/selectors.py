"""The distinct selectors of one queue's consumers, indexed so that a message finds the matching consumers.

Consumers with the same selector form a *group*; those without a selector form one too. A selector that needs
``name = 'text'``, alone or as an operand of its AND, is found by that text: of a thousand consumers with a correlation
id each, a message costs one look-up in a dict. All other selectors are evaluated for each message, so a queue accepts
selectors up to a total number of characters.

The module knows selectors, consumers, their last service, and which may have credit, but not which messages wait or how
a message is sent.
Invariants: every consumer of the queue is in one group. A group that is not ``able`` has no consumer with credit. A
message costs at most ``limits.SELECTOR_QUEUE_CHARS_MAX`` characters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.logs.selection import EVALUATION_CHARS, LOOKUP_CHARS, YES, text_of, values
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from radiator.broker.logs.selection import Selection
    from radiator.broker.logs.wire import PartitionWire
    from radiator.broker.queues.consumer import Consumer, ConsumerSession
    from radiator.storage.batch import RecordBatch


FEW = 8  # for fewer records the results are not cached with the batch


def _evaluation_chars(selection: Selection | None) -> int:
    """Return the cost of evaluating a selector for a record, in characters."""
    return 0 if selection is None else len(selection.text) + EVALUATION_CHARS


class Group:
    """The consumers of one queue with the same selector, the least recently served one first."""

    __slots__ = ("consumers", "selection")

    def __init__(self, selection: Selection | None) -> None:
        self.selection = selection
        self.consumers: OrderedDict[Consumer, None] = OrderedDict()


class Keyed:
    """Groups whose selectors need one name to have a certain text, by that text.

    Attributes:
        chars: The characters that are evaluated for a message, by text.
        groups: The groups, by text.
        most: The highest value that ``chars`` has had since the first group.
    """

    __slots__ = ("chars", "groups", "most")

    def __init__(self) -> None:
        self.groups: dict[str, list[Group]] = {}
        self.chars: dict[str, int] = {}
        self.most = 0


class Selectors:
    """The selectors of one queue's consumers.

    Args:
        consumers: The consumers of the queue.

    Attributes:
        able: The groups that may have a consumer with credit.
        keyed: By name, the groups whose selectors need it to have a certain text. Read-only.
        open: The groups with other selectors, and the group without a selector. Read-only.
    """

    __slots__ = ("_chars", "_groups", "_turn", "_turns", "able", "keyed", "open")

    def __init__(self, consumers: Iterable[Consumer]) -> None:
        self._groups: dict[str, Group] = {}
        self.keyed: dict[str, Keyed] = {}
        self.open: dict[Group, None] = {}
        self._chars = 0
        self._turns: dict[Consumer, int] = {}  # the turn of each consumer's last service
        self._turn = 0
        self.able: dict[Group, None] = {}
        for consumer in consumers:
            self.join(consumer)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    @property
    def plain(self) -> bool:
        """True if no consumer has a selector."""
        return not self.keyed and self._chars == 0

    def group_of(self, consumer: Consumer) -> Group:
        """Return the group of a consumer of the queue."""
        return self._groups[text_of(consumer.selection)]

    # --- joining and leaving ------------------------------------------------------------------------------------------

    @property
    def chars(self) -> int:
        """The highest number of characters that a message may cost."""
        return self._chars + sum(LOOKUP_CHARS + each.most for each in self.keyed.values())

    def chars_of(self, groups: Collection[Group] | None) -> int:
        """Return the characters that each record costs at least, for these groups; None: for all groups."""
        looked = LOOKUP_CHARS * max(1, len(self.keyed))
        if groups is None:
            return looked + self._chars
        return looked + sum(_evaluation_chars(each.selection) for each in self.open if each in groups)

    def check(self, selection: Selection | None, queue: str) -> None:
        """Check that a consumer with this selector may join.

        Args:
            selection: The selector; None: no selector.
            queue: The name of the queue, for the error.

        Raises:
            ProtocolError: There are too many selectors, or too long ones (too-many).
        """
        if selection is None or selection.text in self._groups:
            return
        if len(self._groups) >= limits.SELECTORS_PER_QUEUE_MAX:
            raise ProtocolError(
                "too-many",
                f"header selector: the consumers of {queue[:200]!r} already have {len(self._groups)} different ones",
                f"{limits.SELECTORS_PER_QUEUE_MAX} is the limit. Share a selector, or use several queues.",
            )
        more = 0 if selection.is_key else _evaluation_chars(selection)
        if selection.key is not None:
            known = self.keyed.get(selection.key[0])
            more += LOOKUP_CHARS if known is None else known.chars.get(selection.key[1], 0) - known.most
        if self.chars + more > limits.SELECTOR_QUEUE_CHARS_MAX:
            raise ProtocolError(
                "too-many",
                f"header selector: the consumers of {queue[:200]!r} already have selectors of {self.chars} characters "
                "that are evaluated for each message",
                f"{limits.SELECTOR_QUEUE_CHARS_MAX} is the limit; this one adds {more}. NAME = 'text', alone or as an "
                "operand of AND, is looked up in a table and counts little.",
            )

    def join(self, consumer: Consumer) -> Group | None:
        """Add a consumer and return its group if that is new, else None."""
        selection, text = consumer.selection, text_of(consumer.selection)
        self._turn += 1
        self._turns[consumer] = self._turn
        group, new = self._groups.get(text), None
        if group is None:
            group = new = self._groups[text] = Group(selection)
            self._add(group)
        group.consumers[consumer] = None
        self.able[group] = None
        return new

    def leave(self, consumer: Consumer) -> Group | None:
        """Remove a consumer and return its group if that is empty now, else None."""
        group = self.group_of(consumer)
        del group.consumers[consumer], self._turns[consumer]
        if group.consumers:
            return None
        del self._groups[text_of(group.selection)]
        self.able.pop(group, None)
        self._remove(group)
        return group

    def _add(self, group: Group) -> None:
        selection = group.selection
        if selection is None or selection.key is None:
            self.open[group] = None
            self._chars += _evaluation_chars(selection)
            return
        name, text = selection.key
        keyed = self.keyed.setdefault(name, Keyed())
        keyed.groups.setdefault(text, []).append(group)
        chars = keyed.chars[text] = keyed.chars.get(text, 0) + (0 if selection.is_key else _evaluation_chars(selection))
        keyed.most = max(keyed.most, chars)

    def _remove(self, group: Group) -> None:
        selection = group.selection
        if selection is None or selection.key is None:
            del self.open[group]
            self._chars -= _evaluation_chars(selection)
            return
        name, text = selection.key
        keyed = self.keyed[name]
        keyed.groups[text].remove(group)
        keyed.chars[text] -= 0 if selection.is_key else _evaluation_chars(selection)
        if not keyed.groups[text]:
            del keyed.groups[text], keyed.chars[text]
        if not keyed.groups:
            del self.keyed[name]

    # --- service order ------------------------------------------------------------------------------------------------

    def turn(self, consumer: Consumer) -> int:
        """Return the turn of the consumer's last service: a lower number is longer ago."""
        return self._turns[consumer]

    def credited(self, consumer: Consumer) -> Group:
        """Note that a consumer may have credit again, and return its group."""
        group = self.group_of(consumer)
        self.able[group] = None
        return group

    def served(self, consumer: Consumer) -> None:
        """Note that a message was sent to a consumer: the others come first now."""
        self._turn += 1
        self._turns[consumer] = self._turn
        self.group_of(consumer).consumers.move_to_end(consumer)


class Wanted:
    """The groups that match the records from ``start`` to ``stop`` of a batch.

    Args:
        selectors: The selectors of the queue.
        wire: The wire form of the partition.
        batch: The batch.
        start: The first index.
        stop: The exclusive last index.
        among: Evaluate only these groups; None: all.
    """

    __slots__ = ("_among", "_evaluated", "_columns", "_few", "_keyed", "_start", "_where")

    def __init__(
        self,
        selectors: Selectors,
        wire: PartitionWire,
        batch: RecordBatch,
        start: int,
        stop: int,
        among: Collection[Group] | None = None,
    ) -> None:
        self._where = (wire, batch, start, stop)
        self._start = start
        self._among = among
        self._columns: dict[str, list[str | None]] = {}
        self._few = stop - start < FEW
        self._keyed = [(self._column(name), keyed.groups) for name, keyed in selectors.keyed.items()]
        groups = selectors.open if among is None else [each for each in selectors.open if each in among]
        self._evaluated = [
            (group, None if self._few or group.selection is None else group.selection.verdicts(*self._where))
            for group in groups
        ]

    def by(self, index: int) -> list[Group]:
        """Return the groups that match the record with this index."""
        if self._few:
            found = [group for group, _ in self._evaluated if self._holds(group, index)]
        else:
            found = [group for group, verdicts in self._evaluated if verdicts is None or verdicts[index] == YES]
        for column, groups in self._keyed:
            value = column[index - self._start]
            if value is not None and value in groups:
                found += [
                    group
                    for group in groups[value]
                    if (self._among is None or group in self._among) and self._holds(group, index)
                ]
        return found

    def _column(self, name: str) -> list[str | None]:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = values(*self._where, name)
        return column

    def _holds(self, group: Group, index: int) -> bool:
        selection, place = group.selection, index - self._start
        if selection is None or selection.is_key:
            return True
        return selection.holds([self._column(name)[place] for name in selection.names])


class Credit:
    """The credit of consumers during one call. The window that subscriptions of a session share is spent once.

    Args:
        selectors: The selectors of the queue.
        only: The only consumer to serve; None: all.
        but: A session whose consumers are not served; None: none.
    """

    __slots__ = ("_but", "_left", "_only", "_selectors", "_shared", "_spent")

    def __init__(self, selectors: Selectors, only: Consumer | None, but: ConsumerSession | None) -> None:
        self._selectors = selectors
        self._only = only
        self._but = but
        self._left: dict[Consumer, int] = {}
        self._shared: dict[ConsumerSession, int] = {}  # the rest of a window that a session's subscriptions share
        self._spent: set[Group] = set()

    @property
    def everybody(self) -> bool:
        """True if all consumers may be served."""
        return self._only is None and self._but is None

    def next(self, group: Group) -> Consumer | None:
        """Return the next consumer of the group with credit; None if there is none."""
        if group in self._spent:
            return None
        if self._only is None:
            for consumer in group.consumers:
                if consumer.session is not self._but and self._of(consumer) > 0:
                    return consumer
        elif self._only in group.consumers and self._only.session is not self._but and self._of(self._only) > 0:
            return self._only
        self._spent.add(group)
        return None

    def _of(self, consumer: Consumer) -> int:
        left = self._left.get(consumer)
        if left is None:
            left = self._left[consumer] = consumer.queue_credit()
        if left > 0 and consumer.shares_window:
            window = consumer.session.window
            left = min(left, self._shared.setdefault(consumer.session, window.size - window.held))
        return left

    def close(self) -> None:
        """End the call: groups without credit are not considered again before a consumer of theirs has credit."""
        if self.everybody:
            for group in self._spent:
                self._selectors.able.pop(group, None)

    def take(self, consumer: Consumer) -> None:
        """Spend credit of a consumer for one message."""
        self._left[consumer] -= 1
        if consumer.shares_window:
            self._shared[consumer.session] -= 1
        self._selectors.served(consumer)
