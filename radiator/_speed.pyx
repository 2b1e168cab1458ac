# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twins of eight functions: ``take_ordinary`` and ``same_head_run`` of stomp/ordinary.py,
``receipts_with_offsets`` of stomp/encoder.py, ``encode_few`` of storage/format.py, ``add_batch_part`` of
storage/journal/format.py, ``append_plain`` of broker/publishing/sending.py, ``take_messages`` and ``as_messages`` of
tunnels/messages.py. What they do is documented there.

Two things make them fast: bytes are read and written in place, and objects with slots are read and filled without
calls, by the place of each slot in memory.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport (
    PyLong_AsLongLong,
    PyLong_AsSsize_t,
    PyLong_AsUnsignedLongLong,
    PyLong_Check,
    PyLong_FromSsize_t,
)
from cpython.object cimport PyObject, PyObject_TypeCheck, PyTypeObject
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from struct import error as StructError
from radiator.checksum import crc32

from radiator.errors import ProtocolError, StorageError
from radiator.stomp.frames import Frame

INTERFACE = 6  # see speed.py

cdef extern from *:
    """
    #include <structmember.h>

    /* Where the objects of a class with __slots__ have one of them. */
    static Py_ssize_t slot_offset(PyObject *type, const char *name)
    {
        Py_ssize_t offset = -1;
        PyObject *member = PyObject_GetAttrString(type, name);
        if (member == NULL)
            return -1;
        if (Py_TYPE(member) == &PyMemberDescr_Type && PyDescr_TYPE(member) == (PyTypeObject *)type &&
            ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
            offset = ((PyMemberDescrObject *)member)->d_member->offset;
        else
            PyErr_Format(PyExc_ImportError, "%s is not a slot of %R", name, type);
        Py_DECREF(member);
        return offset;
    }

    #define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

    static void set_slot(PyObject *object, Py_ssize_t offset, PyObject *value)
    {
        PyObject *former = SLOT(object, offset);
        Py_INCREF(value);
        SLOT(object, offset) = value;
        Py_XDECREF(former);
    }

    static PyObject *new_frame(PyObject *type, Py_ssize_t head_at, PyObject *head, Py_ssize_t receipt_at,
                               PyObject *receipt, Py_ssize_t body_at, PyObject *body)
    {
        PyObject *frame = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
        if (frame != NULL) {
            Py_INCREF(head);
            Py_INCREF(receipt);
            Py_INCREF(body);
            SLOT(frame, head_at) = head;
            SLOT(frame, receipt_at) = receipt;
            SLOT(frame, body_at) = body;
        }
        return frame;
    }
    """
    Py_ssize_t slot_offset(object type, const char *name) except -1
    PyObject *SLOT(PyObject *object, Py_ssize_t offset)
    void set_slot(PyObject *object, Py_ssize_t offset, object value)
    object new_frame(
        object type, Py_ssize_t head_at, object head, Py_ssize_t receipt_at, object receipt, Py_ssize_t body_at, object body
    )

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object dictionary, object key) except? NULL
    int PyList_Append(object values, object value) except -1
    object PySequence_Fast(object values, const char *message)
    Py_ssize_t PySequence_Fast_GET_SIZE(object values)
    PyObject **PySequence_Fast_ITEMS(object values)
    object PyUnicode_DecodeUTF8(const char *at, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef object frame_type = Frame
cdef Py_ssize_t FRAME_HEAD = slot_offset(Frame, b"head")
cdef Py_ssize_t FRAME_RECEIPT = slot_offset(Frame, b"receipt")
cdef Py_ssize_t FRAME_BODY = slot_offset(Frame, b"body")

cdef const char *RECEIPT_NAME = b"receipt:"
cdef const char *RECEIPT_HEAD = b"RECEIPT\nreceipt-id:"
cdef const char *RECEIPT_OFFSET = b"\noffset:"
cdef enum:
    RECEIPT_NAME_BYTES = 8
    RECEIPT_HEAD_BYTES = 19
    RECEIPT_OFFSET_BYTES = 8
    DIGITS_MAX = 20  # of an offset, which fits 64 bits


cdef inline bint is_plain(const unsigned char *at, const unsigned char *end) noexcept nogil:
    """Return whether a receipt is printable ASCII without blanks and backslashes."""
    while at < end:
        if at[0] < 0x21 or at[0] > 0x7E or at[0] == 0x5C:
            return False
        at += 1
    return True


def take_ordinary(
    bytes buf not None, Py_ssize_t pos, reader, Py_ssize_t block_bytes_max, Py_ssize_t body_bytes_max, list frames not None
):
    cdef const char *start = PyBytes_AS_STRING(buf)
    cdef const char *end = start + PyBytes_GET_SIZE(buf)
    cdef const char *at = start + pos  # the frame
    cdef const char *far  # the blank line ends before that
    cdef const char *line
    cdef const char *line_end
    cdef const char *receipt_line  # from the LF in front of it
    cdef const char *receipt_end
    cdef const char *body
    cdef const char *body_end
    cdef Py_ssize_t before, behind  # bytes of the block on both sides of the receipt's line
    cdef PyObject *found
    cdef dict young = reader.cache.young
    cdef object head = None, receipt
    cdef Py_ssize_t length = -1  # the content-length of that head
    # The block of that head, which most frames share with the one before; its length is -1 if it is not in the cache.
    cdef bytes block = None
    cdef const char *block_at = NULL
    cdef Py_ssize_t block_bytes = -1

    while at < end:
        if at[0] == b"\n" or at[0] == b"\r" or at[0] == 0:
            at += 1
            continue
        # -- the lines of the header block
        far = at + block_bytes_max + 2 if block_bytes_max + 2 < end - at else end
        receipt_line = receipt_end = NULL
        line = at
        while True:
            line_end = <const char *>memchr(line, b"\n", far - line)
            if line_end == NULL:
                return at - start
            if line_end == line:
                break
            if (line_end - 1)[0] == b"\r":
                return at - start
            if (
                receipt_line == NULL
                and line != at
                and line_end - line >= RECEIPT_NAME_BYTES
                and memcmp(line, RECEIPT_NAME, RECEIPT_NAME_BYTES) == 0
            ):
                receipt_line = line - 1
                receipt_end = line_end
            line = line_end + 1
        line_end -= 1
        if receipt_line == NULL:
            receipt = None
            receipt_end = line_end
            before = line_end - at
        else:
            line = receipt_line + 1 + RECEIPT_NAME_BYTES
            if not is_plain(<const unsigned char *>line, <const unsigned char *>receipt_end):
                return at - start
            receipt = PyBytes_FromStringAndSize(line, receipt_end - line)
            before = receipt_line - at
        behind = line_end - receipt_end
        # -- its head
        if (
            block_bytes != before + behind
            or memcmp(block_at, at, before) != 0
            or memcmp(block_at + before, receipt_end, behind) != 0
        ):
            block_bytes = -1
            block = PyBytes_FromStringAndSize(NULL, before + behind)
            block_at = PyBytes_AS_STRING(block)
            memcpy(<char *>block_at, at, before)
            memcpy(<char *>block_at + before, receipt_end, behind)
            found = PyDict_GetItemWithError(young, block) if at[0] == b"S" else NULL
            if found != NULL:
                head = <object>found
            else:
                try:
                    head = reader.quick(block)
                except ProtocolError:
                    return at - start
                if head is None:
                    return at - start
                young = reader.cache.young
            length = head.content_length
            if found != NULL or block in young:
                block_bytes = before + behind
        # -- the body
        body = line_end + 2
        if length >= 0:
            if length > body_bytes_max or length >= end - body or body[length] != 0:
                return at - start
            body_end = body + length
        else:
            body_end = <const char *>memchr(body, 0, end - body)
            if body_end == NULL or body_end - body > body_bytes_max:
                return at - start
        PyList_Append(
            frames,
            new_frame(
                frame_type,
                FRAME_HEAD,
                head,
                FRAME_RECEIPT,
                receipt,
                FRAME_BODY,
                PyBytes_FromStringAndSize(body, body_end - body),
            ),
        )
        at = body_end + 1
    return at - start


cdef inline PyObject *slot(object frame, Py_ssize_t offset) except NULL:
    """Return what a Frame has in a slot, a borrowed reference."""
    if type(frame) is not frame_type:
        raise TypeError("expected a Frame")
    cdef PyObject *value = SLOT(<PyObject *>frame, offset)
    if value == NULL:
        raise AttributeError("a slot of the Frame is empty")
    return value


def same_head_run(list frames not None, Py_ssize_t start, Py_ssize_t most):
    cdef object frame = frames[start] if 0 <= start < len(frames) else None
    cdef PyObject *head = slot(frame, FRAME_HEAD)
    cdef PyObject *none = <PyObject *>None
    cdef PyObject *receipt
    cdef bint asks = slot(frame, FRAME_RECEIPT) != none
    cdef list bodies = [], receipts = []
    cdef Py_ssize_t index, body_bytes = 0
    cdef object body
    for index in range(start, min(start + most, len(frames))):
        frame = frames[index]
        receipt = slot(frame, FRAME_RECEIPT)
        if slot(frame, FRAME_HEAD) != head or (receipt != none) != asks:
            break
        body = <object>slot(frame, FRAME_BODY)
        body_bytes += len(<bytes?>body)
        PyList_Append(bodies, body)
        if asks:
            PyList_Append(receipts, <object>receipt)
    return bodies, receipts, body_bytes


cdef inline char *put_number(char *at, unsigned long long number) noexcept nogil:
    """Write a number in decimal, and return where it ends."""
    cdef char digits[DIGITS_MAX]
    cdef int count = 0
    while True:
        digits[count] = <char>(48 + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


def receipts_with_offsets(list ids not None, list offsets not None, list suffixes not None):
    cdef Py_ssize_t count = len(ids)
    cdef Py_ssize_t index, size = count * (RECEIPT_HEAD_BYTES + RECEIPT_OFFSET_BYTES + DIGITS_MAX)
    cdef bytes frames, receipt, suffix
    cdef char *at
    if len(offsets) != count or len(suffixes) != count:
        raise ValueError("expected an offset and a suffix for each receipt")
    for index in range(count):
        receipt, suffix = <bytes?>ids[index], <bytes?>suffixes[index]
        size += len(receipt) + len(suffix)
    frames = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(frames)
    for index in range(count):
        receipt, suffix = <bytes>ids[index], <bytes>suffixes[index]
        memcpy(at, RECEIPT_HEAD, RECEIPT_HEAD_BYTES)
        at += RECEIPT_HEAD_BYTES
        memcpy(at, PyBytes_AS_STRING(receipt), len(receipt))
        at += len(receipt)
        memcpy(at, RECEIPT_OFFSET, RECEIPT_OFFSET_BYTES)
        at = put_number(at + RECEIPT_OFFSET_BYTES, <unsigned long long>offsets[index])
        memcpy(at, PyBytes_AS_STRING(suffix), len(suffix))
        at += len(suffix)
    return frames[: at - PyBytes_AS_STRING(frames)]


cdef const char *BATCH_MAGIC = b"\x89RDB1\r\n\x1a"
cdef const char *NO_SEQUENCE = b"expected a sequence"
cdef enum:
    MAGIC_BYTES = 8
    CRC_FROM = 16  # what precedes it is the first piece of a batch
    FIXED_BYTES = 48  # of the header, from there on


cdef inline char *put(char *at, unsigned long long number, int width) noexcept nogil:
    """Write the low ``width`` bytes of a number, little-endian, and return where they end."""
    cdef int index
    for index in range(width):
        at[index] = <char>(number >> (8 * index))
    return at + width


cdef inline char *pad(char *at, Py_ssize_t length) noexcept nogil:
    """Write the zeros that follow a part of ``length`` bytes, and return where they end."""
    memset(at, 0, -length & 7)
    return at + (-length & 7)


cdef inline Py_ssize_t padded(Py_ssize_t length) noexcept nogil:
    return (length + 7) & ~7


cdef unsigned long long unsigned_number(object value, int bits) except? 0xFFFFFFFFFFFFFFFF:
    """Return an int that fits so many bits without a sign."""
    cdef unsigned long long number
    try:
        number = PyLong_AsUnsignedLongLong(value)
    except OverflowError:
        raise StructError(f"{value} does not fit {bits} bits without a sign") from None
    if bits < 64 and number >> bits:
        raise StructError(f"{value} does not fit {bits} bits without a sign")
    return number


cdef Py_ssize_t bytes_of(object values) except -2:
    """Return how many bytes the values have together; -1 if one is not of the type bytes."""
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef Py_ssize_t index, size = 0
    for index in range(PySequence_Fast_GET_SIZE(values)):
        if not PyBytes_CheckExact(<object>items[index]):
            return -1
        size += PyBytes_GET_SIZE(<object>items[index])
    return size


cdef bint are_ints(object values) noexcept:
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef Py_ssize_t index
    for index in range(PySequence_Fast_GET_SIZE(values)):
        if not PyLong_Check(<object>items[index]):
            return False
    return True


cdef char *put_times(char *at, object values) except NULL:
    """Write a column of ints, and return where it ends."""
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef Py_ssize_t index
    try:
        for index in range(PySequence_Fast_GET_SIZE(values)):
            at = put(at, <unsigned long long>PyLong_AsLongLong(<object>items[index]), 8)
    except OverflowError:
        raise StructError("a time does not fit 64 bits") from None
    return at


cdef char *put_starts(char *at, object values) noexcept:
    """Write where each value begins in its region, and where the last one ends. Return where the column ends."""
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef Py_ssize_t index, count = PySequence_Fast_GET_SIZE(values), start = 0
    for index in range(count):
        at = put(at, <unsigned long long>start, 4)
        start += PyBytes_GET_SIZE(<object>items[index])
    return pad(put(at, <unsigned long long>start, 4), 4 * (count + 1))


cdef char *put_region(char *at, object values, Py_ssize_t length) noexcept:
    """Write the values one after the other, and return where the region ends."""
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef Py_ssize_t index, size
    for index in range(PySequence_Fast_GET_SIZE(values)):
        size = PyBytes_GET_SIZE(<object>items[index])
        memcpy(at, PyBytes_AS_STRING(<object>items[index]), size)
        at += size
    return pad(at, length)


cdef object column(object values, Py_ssize_t count):
    """Return the values as a list or tuple, None if one is no int."""
    cdef object found = PySequence_Fast(values, NO_SEQUENCE)
    if PySequence_Fast_GET_SIZE(found) != count:
        raise StructError(f"expected {count} times, got {PySequence_Fast_GET_SIZE(found)}")
    return found if are_ints(found) else None


def encode_few(
    base_offset, receive_ns, event_ns, transmit_ns, str name not None, blocks, bodies, flags, salt, Py_ssize_t bytes_max
):
    cdef object heads = PySequence_Fast(blocks, NO_SEQUENCE)
    cdef object loads = PySequence_Fast(bodies, NO_SEQUENCE)
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(heads)
    cdef object receive, event = None, transmit = None
    cdef Py_ssize_t times = 1, name_bytes, headers_len, bodies_len, size
    cdef const char *name_at = PyUnicode_AsUTF8AndSize(name, &name_bytes)
    cdef bytes prefix, rest
    cdef char *start
    cdef char *at
    if count == 0 or PySequence_Fast_GET_SIZE(loads) != count:
        raise StructError(f"expected as many bodies as blocks, got {PySequence_Fast_GET_SIZE(loads)} and {count}")
    # What is not of the usual types is left to encode_batch, which takes other types too.
    if not (PyLong_Check(base_offset) and PyLong_Check(flags) and PyLong_Check(salt)):
        return None
    receive = column(receive_ns, count)
    if receive is None:
        return None
    if event_ns is not None:
        event = column(event_ns, count)
        times += 1
        if event is None:
            return None
    if transmit_ns is not None:
        transmit = column(transmit_ns, count)
        times += 1
        if transmit is None:
            return None
    # No code of Python runs from here up to the crc, so all values stay what they are.
    headers_len, bodies_len = bytes_of(heads), bytes_of(loads)
    if headers_len < 0 or bodies_len < 0 or headers_len + bodies_len >= bytes_max:
        return None
    size = FIXED_BYTES + 8 * count * times + 2 * padded(4 * (count + 1)) + padded(4 * count)
    size += padded(4 + name_bytes) + padded(headers_len) + padded(bodies_len)
    rest = PyBytes_FromStringAndSize(NULL, size)
    start = PyBytes_AS_STRING(rest)
    at = put(start, unsigned_number(base_offset, 64), 8)
    at += 16  # the first and the last receive time, copied below
    at = put(at, <unsigned long long>count, 4)
    at = put(at, unsigned_number(flags, 16), 2)
    at = put(at, 1, 2)
    at = put(at, <unsigned long long>(4 + name_bytes), 4)
    at = put(at, <unsigned long long>headers_len, 4)
    at = put(at, <unsigned long long>bodies_len, 4)
    at = put(at, unsigned_number(salt, 32), 4)
    at = put_times(at, receive)
    memcpy(start + 8, start + FIXED_BYTES, 8)
    memcpy(start + 16, at - 8, 8)
    if event is not None:
        at = put_times(at, event)
    if transmit is not None:
        at = put_times(at, transmit)
    at = put_starts(at, heads)
    at = put_starts(at, loads)
    memset(at, 0, padded(4 * count))
    at += padded(4 * count)
    at = put(at, <unsigned long long>name_bytes, 4)
    memcpy(at, name_at, name_bytes)
    at = pad(at + name_bytes, 4 + name_bytes)
    at = put_region(at, heads, headers_len)
    at = put_region(at, loads, bodies_len)
    prefix = PyBytes_FromStringAndSize(NULL, CRC_FROM)
    at = PyBytes_AS_STRING(prefix)
    memcpy(at, BATCH_MAGIC, MAGIC_BYTES)
    at = put(at + MAGIC_BYTES, <unsigned long long>(CRC_FROM + size), 4)
    put(at, <unsigned long long>crc32(rest), 4)
    return [prefix, rest]


cdef enum:
    BATCH_PART = 1
    PART_HEAD_BYTES = 7


def add_batch_part(list sealed not None, list parts not None, bytes partition not None, list pieces not None):
    cdef unsigned long long length = 0
    cdef Py_ssize_t name_bytes = PyBytes_GET_SIZE(partition)
    cdef object piece
    cdef bytes head
    cdef char *at
    if len(pieces) == 0:  # the bounds of lists are not checked here
        raise IndexError("expected the pieces of a batch")
    for piece in pieces:
        if not PyBytes_CheckExact(piece):
            raise TypeError("expected pieces of bytes")
        length += PyBytes_GET_SIZE(piece)
    if name_bytes >> 16 or length >> 32:
        raise StructError(f"a name of {name_bytes} bytes or a batch of {length} is too long")
    head = PyBytes_FromStringAndSize(NULL, PART_HEAD_BYTES + name_bytes)
    at = put(PyBytes_AS_STRING(head), BATCH_PART, 1)
    at = put(put(at, <unsigned long long>name_bytes, 2), length, 4)
    memcpy(at, PyBytes_AS_STRING(partition), name_bytes)
    PyList_Append(sealed, head)
    PyList_Append(sealed, pieces[0])
    PyList_Append(parts, head)
    for piece in pieces:
        PyList_Append(parts, piece)
    return PART_HEAD_BYTES + name_bytes + length



# Where the objects have their slots that ``append_plain`` reads and fills; known from its first call on.
cdef bint knows_slots = False
cdef object head_type, plan_type, destination_type, feed_type, log_type, batch_type, line_type, group_type
cdef object logs, sends, lines  # the modules whose constants hold here too
cdef Py_ssize_t HEAD_MEMO
cdef Py_ssize_t PLAN_BLOCK, PLAN_DESTINATION, PLAN_EVENT, PLAN_FEED, PLAN_GENERATION, PLAN_NAME, PLAN_PLAIN
cdef Py_ssize_t PLAN_RIGHTS, PLAN_TRANSMIT
cdef Py_ssize_t DESTINATION_FEEDS, DESTINATION_SUBSCRIBERS, DESTINATION_SUFFIXES
cdef Py_ssize_t FEED_LOG
cdef Py_ssize_t LOG_BATCH, LOG_NEXT, LOG_RECEIVE
cdef Py_ssize_t BATCH_BLOCKS, BATCH_BODIES, BATCH_NAMES, BATCH_PLAIN, BATCH_RECEIVE, BATCH_SIZE, BATCH_TURN
cdef Py_ssize_t LINE_FAILURE, LINE_FRESH, LINE_HELD, LINE_LAST, LINE_QUIET
cdef Py_ssize_t GROUP_IDS, GROUP_OFFSETS, GROUP_PLACES, GROUP_SUFFIXES, GROUP_TURN, GROUP_WEIGHT


cdef int know_slots() except -1:
    global knows_slots, logs, sends, lines
    global head_type, plan_type, destination_type, feed_type, log_type, batch_type, line_type, group_type
    global HEAD_MEMO, PLAN_BLOCK, PLAN_DESTINATION, PLAN_EVENT, PLAN_FEED, PLAN_GENERATION, PLAN_NAME, PLAN_PLAIN
    global PLAN_RIGHTS, PLAN_TRANSMIT, DESTINATION_FEEDS, DESTINATION_SUBSCRIBERS, DESTINATION_SUFFIXES, FEED_LOG
    global LOG_BATCH, LOG_NEXT, LOG_RECEIVE
    global BATCH_BLOCKS, BATCH_BODIES, BATCH_NAMES, BATCH_PLAIN, BATCH_RECEIVE, BATCH_SIZE, BATCH_TURN
    global LINE_FAILURE, LINE_FRESH, LINE_HELD, LINE_LAST, LINE_QUIET
    global GROUP_IDS, GROUP_OFFSETS, GROUP_PLACES, GROUP_SUFFIXES, GROUP_TURN, GROUP_WEIGHT
    from radiator.broker.clients import receipts
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.publishing import sending
    from radiator.stomp.frames import Head
    from radiator.storage import partition

    logs, sends, lines = partition, sending, receipts
    head_type, plan_type, destination_type, feed_type = Head, sending.Plan, Destination, Feed
    log_type, batch_type = partition.Partition, partition.BatchBuilder
    line_type, group_type = receipts.ReceiptLine, receipts.ReceiptGroup
    HEAD_MEMO = slot_offset(head_type, b"memo")
    PLAN_BLOCK = slot_offset(plan_type, b"block")
    PLAN_DESTINATION = slot_offset(plan_type, b"destination")
    PLAN_EVENT = slot_offset(plan_type, b"event_ns")
    PLAN_FEED = slot_offset(plan_type, b"feed")
    PLAN_GENERATION = slot_offset(plan_type, b"generation")
    PLAN_NAME = slot_offset(plan_type, b"name")
    PLAN_PLAIN = slot_offset(plan_type, b"plain")
    PLAN_RIGHTS = slot_offset(plan_type, b"rights")
    PLAN_TRANSMIT = slot_offset(plan_type, b"transmit_ns")
    DESTINATION_FEEDS = slot_offset(destination_type, b"feeds")
    DESTINATION_SUBSCRIBERS = slot_offset(destination_type, b"subscribers")
    DESTINATION_SUFFIXES = slot_offset(destination_type, b"_suffixes")
    FEED_LOG = slot_offset(feed_type, b"partition")
    LOG_BATCH = slot_offset(log_type, b"open_batch")
    LOG_NEXT = slot_offset(log_type, b"next_offset")
    LOG_RECEIVE = slot_offset(log_type, b"last_receive_ns")
    BATCH_BLOCKS = slot_offset(batch_type, b"blocks")
    BATCH_BODIES = slot_offset(batch_type, b"bodies")
    BATCH_NAMES = slot_offset(batch_type, b"ids")
    BATCH_PLAIN = slot_offset(batch_type, b"plain")
    BATCH_RECEIVE = slot_offset(batch_type, b"receive_ns")
    BATCH_SIZE = slot_offset(batch_type, b"size_bytes")
    BATCH_TURN = slot_offset(batch_type, b"turn")
    LINE_FAILURE = slot_offset(line_type, b"_failure")
    LINE_FRESH = slot_offset(line_type, b"_fresh")
    LINE_HELD = slot_offset(line_type, b"held_bytes")
    LINE_LAST = slot_offset(line_type, b"_last")
    LINE_QUIET = slot_offset(line_type, b"quiet")
    GROUP_IDS = slot_offset(group_type, b"ids")
    GROUP_OFFSETS = slot_offset(group_type, b"offsets")
    GROUP_PLACES = slot_offset(group_type, b"places")
    GROUP_SUFFIXES = slot_offset(group_type, b"suffixes")
    GROUP_TURN = slot_offset(group_type, b"turn")
    GROUP_WEIGHT = slot_offset(group_type, b"weight_bytes")
    knows_slots = True
    return 0


cdef inline object get(object owner, Py_ssize_t offset):
    """Return what an object of a known type has in a slot."""
    cdef PyObject *value = SLOT(<PyObject *>owner, offset)
    if value == NULL:
        raise AttributeError(f"a slot of a {type(owner).__name__} is empty")
    return <object>value


cdef inline int add_to(object owner, Py_ssize_t offset, Py_ssize_t number) except -1:
    """Add to the int that an object of a known type has in a slot."""
    set_slot(<PyObject *>owner, offset, PyLong_FromSsize_t(PyLong_AsSsize_t(get(owner, offset)) + number))
    return 0


cdef object append_to_open(
    object log, object plan, bytes body, object now_ns, object idle, Py_ssize_t records_max, Py_ssize_t bytes_max
):
    """Append a message to the open batch, or to one that begins. Return its offset. None: it is not a usual one, and is
    not appended. Raises StorageError if the log refuses it."""
    cdef object batch = get(log, LOG_BATCH), offset = get(log, LOG_NEXT), receive_ns = get(log, LOG_RECEIVE)
    cdef object block = get(plan, PLAN_BLOCK), name = get(plan, PLAN_NAME)
    cdef list blocks
    cdef Py_ssize_t size = len(body) + len(<bytes?>block)
    if get(plan, PLAN_EVENT) is not None or get(plan, PLAN_TRANSMIT) is not None:
        return None
    if PyLong_AsLongLong(receive_ns) < PyLong_AsLongLong(now_ns):
        receive_ns = now_ns
    if batch is idle:
        batch = log._begin()
        batch.name(name)
        if type(batch) is not batch_type:
            raise TypeError("expected a BatchBuilder")
        blocks = <list?>get(batch, BATCH_BLOCKS)
    else:
        if type(batch) is not batch_type or get(batch, BATCH_PLAIN) is not True:
            return None
        blocks = <list?>get(batch, BATCH_BLOCKS)
        if len(blocks) >= records_max or PyLong_AsSsize_t(get(batch, BATCH_SIZE)) + size > bytes_max:
            return None
        if PyDict_GetItemWithError(get(batch, BATCH_NAMES), name) == NULL:
            return None
    set_slot(<PyObject *>log, LOG_RECEIVE, receive_ns)
    PyList_Append(<list?>get(batch, BATCH_RECEIVE), receive_ns)
    PyList_Append(blocks, block)
    PyList_Append(<list?>get(batch, BATCH_BODIES), body)
    add_to(batch, BATCH_SIZE, size)
    add_to(log, LOG_NEXT, 1)
    return offset


def append_plain(
    list frames not None, Py_ssize_t start, Py_ssize_t stop, generation, rights, version, receipts, now_ns
):
    cdef Py_ssize_t index = start, body_bytes = 0, weight = 0, receipt_bytes
    cdef Py_ssize_t records_max, bytes_max, record_weight, receipt_weight
    cdef object frame, head, plan, destination, feed, log, batch, offset, receipt, group, suffix, idle
    cdef PyObject *found
    cdef list feeds
    cdef bytes body
    if start < 0 or stop > len(frames):  # the bounds of lists are not checked here
        raise IndexError("expected frames that are there")
    if not knows_slots:
        know_slots()
    if type(receipts) is not line_type:
        raise TypeError("expected a ReceiptLine")
    idle, records_max, bytes_max = logs.IDLE, logs.RECORDS_MAX, logs.BYTES_MAX
    record_weight, receipt_weight = sends.RECORD_OVERHEAD_BYTES, lines.RECEIPT_OVERHEAD_BYTES
    while index < stop and index < len(frames):
        frame = frames[index]
        head = <object>slot(frame, FRAME_HEAD)
        if type(head) is not head_type:
            break
        plan = get(head, HEAD_MEMO)
        if type(plan) is not plan_type or get(plan, PLAN_PLAIN) is not True or get(plan, PLAN_RIGHTS) is not rights:
            break
        if get(plan, PLAN_GENERATION) != generation:
            break
        destination, feed = get(plan, PLAN_DESTINATION), get(plan, PLAN_FEED)
        if type(destination) is not destination_type:
            break
        if feed is None:
            feeds = <list?>get(destination, DESTINATION_FEEDS)
            if len(feeds) != 1:
                break
            feed = feeds[0]
        if type(feed) is not feed_type:
            break
        log = get(feed, FEED_LOG)
        if not PyObject_TypeCheck(log, <PyTypeObject *>log_type):  # isinstance would ask the metaclass
            break
        body = <bytes?><object>slot(frame, FRAME_BODY)
        try:
            offset = append_to_open(log, plan, body, now_ns, idle, records_max, bytes_max)
            if offset is None:
                offset = log.append(
                    get(plan, PLAN_NAME),
                    get(plan, PLAN_BLOCK),
                    body,
                    now_ns,
                    get(plan, PLAN_EVENT),
                    get(plan, PLAN_TRANSMIT),
                )
        except (StorageError, ValueError):
            break
        weight += len(body) + len(<bytes?>get(plan, PLAN_BLOCK)) + record_weight
        body_bytes += len(body)
        batch = get(log, LOG_BATCH)
        receipt = <object>slot(frame, FRAME_RECEIPT)
        if receipt is not None:
            found = PyDict_GetItemWithError(
                get(destination, DESTINATION_SUFFIXES), (feed, get(destination, DESTINATION_SUBSCRIBERS), version)
            )
            suffix = destination.receipt_suffix(feed, version) if found == NULL else <object>found
            group = get(receipts, LINE_LAST)
            if (
                type(group) is group_type
                and type(batch) is batch_type
                and get(group, GROUP_TURN) is get(batch, BATCH_TURN)
                and len(<dict?>get(receipts, LINE_FRESH)) == 0
                and get(receipts, LINE_FAILURE) is None
            ):
                receipt_bytes = len(<bytes?>receipt) + receipt_weight
                PyList_Append(<list?>get(group, GROUP_IDS), receipt)
                PyList_Append(<list?>get(group, GROUP_OFFSETS), offset)
                PyList_Append(<list?>get(group, GROUP_SUFFIXES), suffix)
                PyList_Append(<list?>get(group, GROUP_PLACES), batch)
                add_to(group, GROUP_WEIGHT, receipt_bytes)
                add_to(receipts, LINE_HELD, receipt_bytes)
                weight += receipt_bytes
            else:
                weight += receipts.stored(receipt, offset, batch, suffix)
        elif batch is not get(receipts, LINE_QUIET):
            receipts.silently(batch)
        index += 1
        if index < len(frames) and slot(frames[index], FRAME_HEAD) == <PyObject *>head:
            break
    return index, body_bytes, weight


cdef const unsigned char *NO_MASK = b"\0\0\0\0"
cdef const char *CONTENT_LENGTH = b"content-length:"
cdef enum:
    FIN_TEXT = 0x81
    FIN_BINARY = 0x82
    CONTENT_LENGTH_BYTES = 15
    PLAIN_DIGITS_MAX = 18  # of a content-length that is read here


cdef inline bint put_unmasked(
    unsigned char *to, const unsigned char *at, Py_ssize_t length, const unsigned char *key
) noexcept nogil:
    """Write a payload without its mask; return whether it is ASCII."""
    cdef unsigned long long mask, word, seen = 0
    cdef Py_ssize_t index = 0
    memcpy(&mask, key, 4)
    memcpy(<char *>&mask + 4, key, 4)
    while index + 8 <= length:
        memcpy(&word, at + index, 8)
        word ^= mask
        seen |= word
        memcpy(to + index, &word, 8)
        index += 8
    while index < length:
        to[index] = at[index] ^ key[index & 3]
        seen |= to[index]
        index += 1
    return not seen & <unsigned long long>0x8080808080808080


def take_messages(bytes data not None, Py_ssize_t start, Py_ssize_t most, bint masked):
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data) + start
    cdef const unsigned char *end = <const unsigned char *>PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)
    cdef const unsigned char *body
    cdef const unsigned char *key
    cdef bytes payloads
    cdef unsigned char *to
    cdef unsigned char *begin
    cdef unsigned long long length
    cdef Py_ssize_t count = 0
    cdef int opcode = 0, width
    cdef bint is_ascii
    if not 0 <= start <= PyBytes_GET_SIZE(data):
        raise IndexError("start is not in data")
    payloads = PyBytes_FromStringAndSize(NULL, end - at)
    begin = to = <unsigned char *>PyBytes_AS_STRING(payloads)
    while count < most and end - at >= 2:
        if (at[0] != FIN_TEXT and at[0] != FIN_BINARY) or (at[1] >= 0x80) != masked:
            break
        length = at[1] & 0x7F
        body = at + 2
        if length >= 126:
            width = 2 if length == 126 else 8
            if end - body < width:
                break
            length = 0
            while width:
                length = length << 8 | body[0]
                body += 1
                width -= 1
        key = NO_MASK
        if masked:
            if end - body < 4:
                break
            key = body
            body += 4
        if length > <unsigned long long>(end - body):
            break
        is_ascii = put_unmasked(to, body, <Py_ssize_t>length, key)
        if at[0] == FIN_TEXT and not is_ascii:
            try:
                PyUnicode_DecodeUTF8(<const char *>to, <Py_ssize_t>length, NULL)
            except UnicodeDecodeError:
                break
        opcode = at[0] & 0x0F
        to += length
        at = body + length
        count += 1
    return payloads[: to - begin], at - <const unsigned char *>PyBytes_AS_STRING(data), count, opcode


cdef Py_ssize_t frame_end(bytes data, Py_ssize_t start) except -1:
    """Return the index behind the STOMP frame or heart-beat at ``start``."""
    cdef const char *begin = PyBytes_AS_STRING(data)
    cdef const char *end = begin + PyBytes_GET_SIZE(data)
    cdef const char *at = begin + start
    cdef const char *line = at
    cdef const char *line_end
    cdef const char *value = NULL  # of content-length
    cdef const char *value_end = NULL
    cdef const char *digit
    cdef const char *found
    cdef Py_ssize_t length = 0, stop
    if at[0] == 0x0A:
        return start + 1
    while True:
        line_end = <const char *>memchr(line, 0x0A, end - line)
        if line_end == NULL or line_end + 1 == end:
            return end - begin
        if value_end == NULL and value != NULL:
            value_end = line_end
        if line_end[1] == 0x0A:
            break
        line = line_end + 1
        if value == NULL and end - line >= CONTENT_LENGTH_BYTES and memcmp(line, CONTENT_LENGTH, CONTENT_LENGTH_BYTES) == 0:
            value = line + CONTENT_LENGTH_BYTES
    if value == NULL:
        found = <const char *>memchr(line_end, 0, end - line_end)
        stop = end - begin if found == NULL else found - begin + 1
    else:
        digit = value
        while digit < value_end and 0x30 <= digit[0] <= 0x39:
            length = 10 * length + digit[0] - 0x30
            digit += 1
            if digit - value > PLAIN_DIGITS_MAX:
                break
        if digit == value_end and digit > value:
            stop = length
        else:
            stop = min(int(data[value - begin : value_end - begin]), end - begin)
        stop += line_end - begin + 3
        if stop <= start or stop > end - begin:
            stop = end - begin
    if stop < end - begin and begin[stop] == 0x0A:
        stop += 1
    return stop


def as_messages(bytes data not None, int opcode):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), at = 0, count = 0, room = 0, total = 0, length, index, shift
    cdef Py_ssize_t *ends = NULL
    cdef Py_ssize_t *more
    cdef bytes messages
    cdef unsigned char *to
    try:
        while at < size:
            if count == room:
                room = 2 * room + 64
                more = <Py_ssize_t *>realloc(ends, room * sizeof(Py_ssize_t))
                if more == NULL:
                    raise MemoryError
                ends = more
            length = at
            at = ends[count] = frame_end(data, at)
            count += 1
            length = at - length
            total += length + (2 if length < 126 else 4 if length < 65536 else 10)
        messages = PyBytes_FromStringAndSize(NULL, total)
        to = <unsigned char *>PyBytes_AS_STRING(messages)
        at = 0
        for index in range(count):
            length = ends[index] - at
            to[0] = 0x80 | opcode
            if length < 126:
                to[1] = <unsigned char>length
                to += 2
            else:
                to[1] = 126 if length < 65536 else 127
                to += 2
                shift = 8 if length < 65536 else 56
                while shift >= 0:
                    to[0] = <unsigned char>(length >> shift)
                    to += 1
                    shift -= 8
            memcpy(to, PyBytes_AS_STRING(data) + at, length)
            to += length
            at = ends[index]
        return messages
    finally:
        free(ends)
