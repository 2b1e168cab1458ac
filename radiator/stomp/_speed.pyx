# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twins of three functions of this package: ``take_ordinary`` and ``same_head_run`` of ordinary.py,
``receipts_with_offsets`` of encoder.py. What they do is documented there.

Two things make them fast: bytes are looked through in place, and a Frame is made and read without calls, by the place
of its slots in memory.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memchr, memcmp, memcpy

from radiator.errors import ProtocolError
from radiator.stomp.frames import Frame

INTERFACE = 1  # see speed.py

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
    object new_frame(
        object type, Py_ssize_t head_at, object head, Py_ssize_t receipt_at, object receipt, Py_ssize_t body_at, object body
    )

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object dictionary, object key) except? NULL
    int PyList_Append(object values, object value) except -1

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
