"""All limits, each with its reason. The name of a limit contains its unit.

Some limits are defaults of keys under ``limits:`` of the YAML file (``docs/configuration.md``). The others cannot be
changed.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- what a peer may send -------------------------------------------------------------------------------------------
FRAME_BODY_BYTES_MAX = 4 * MIB  # a log of messages, not of files; one body must never crowd out the others
HEADER_BLOCK_BYTES_MAX = 64 * KIB  # bounds what an unfinished header of one connection can make us hold
PIECE_BYTES_MIN = 4 * KIB  # of an unfinished frame: smaller ones are joined, since each costs 50 bytes more
COMMAND_BYTES_MAX = 32  # the longest command of STOMP has 11 letters; a peer that is not STOMP is told so at once
HEADER_COUNT_MAX = 200  # well over any client's habit; bounds the cost of one parse
CONNECTIONS_MAX = 10_000  # a file descriptor and about 20 KiB each
CONNECT_TIMEOUT_SECONDS = 10.0  # a socket that says nothing must not hold a place
FRAME_TIMEOUT_SECONDS = 60.0  # of a part of a frame that does not grow: it holds memory, and stops its heart-beats
SESSION_SECRET_BYTES = 16  # in addresses of temporary queues: cannot be guessed, however many are tried
LOGINS_WAITING_MAX = 10_000  # different logins that wait for the users file, and as many for a plug-in: 1 KB each
PLUGIN_CALLS_MAX = 4  # at a time, a thread each: a plug-in may wait for other machines
PLUGIN_SECONDS_MAX = 5.0  # of one call: well within CONNECT_TIMEOUT_SECONDS, so that the client is told why
SUBSCRIPTIONS_PER_SESSION_MAX = 1_000
JOINED_PER_SESSION_MAX = 200_000  # destinations that its subscriptions take part in, summed up: 400 bytes each
JOINED_MAX = 1_000_000  # of all sessions and durable names; each may have limits.subscriptions of them in any case
TRANSACTIONS_PER_SESSION_MAX = 100
TRANSACTION_BYTES_MAX = 16 * MIB  # a transaction is held in memory until COMMIT, and is one batch on disk
TRANSACTION_TIMEOUT_SECONDS = 300.0  # it holds back what it has acknowledged; Artemis's default, Kafka's is 60 s
DESTINATION_BYTES_MAX = 240  # of the percent-encoded name: it is a directory name (NAME_MAX is 255)
DESTINATIONS_MAX = 100_000
TEMPORARY_SPARE = 1_000  # temporary queues above it: who administers a broker that is full needs one for the answer
PATTERN_SEGMENTS_MAX = 128  # a name has no more segments than bytes; bounds the cost of one match
PATTERNS_PER_LIST_MAX = 100  # a comma list in one SUBSCRIBE: one frame must not be too much work
REGEX_CHARS_MAX = 256  # an expression of a client
REGEX_STEPS_MAX = 300  # of the compiled expression: bounds what one name costs, to some hundred microseconds
REGEX_SUBSCRIPTIONS_MAX = 200  # of the whole broker: each is tried when a destination is created
SELECTOR_CHARS_MAX = 4_096  # a condition over headers, read and compiled on the loop
SELECTOR_TERMS_MAX = 200  # names and literals: bounds what one message costs, to about 50 us
SELECTOR_DEPTH_MAX = 32  # parentheses, NOTs and signs: bounds the stack
SELECTOR_RUN_CHARS = 16_000  # a reader looks at so many records x characters of its selector in a turn: a few ms
SELECTOR_RUN_BYTES = 64 * KIB  # and at records of about this size: what LIKE takes grows with the values
SELECTORS_PER_BATCH_MAX = 64  # whose verdicts a batch in memory keeps, a byte for each of its records
SELECTORS_PER_QUEUE_MAX = 10_000  # different ones of the consumers of one queue: about a kilobyte each
SELECTOR_QUEUE_CHARS_MAX = 32_000  # of them that one message is evaluated with: a few ms for each message
SKIPPED_RUNS_MAX = 100_000  # runs of messages that one log's consumers do not want, between others: 80 bytes each
SKIPPED_RUNS_ALL_MAX = 1_000_000  # ... of all logs together
SKIPPED_RUNS_OWN = 1_000  # ... but each log may have so many in any case: one log cannot use up all
SKIPPED_FOUND_MAX = 256  # skipped messages that are remembered for one selector; more are read from the log again
SELECTOR_SEARCHES_MAX = 8  # parts of a LIKE with _ between two %: 0.1 us for each character of the value

# --- work -------------------------------------------------------------------------------------------------------------
TURN_WORK = 2_000  # units of about a microsecond: how long one command may keep everybody else waiting
ACK_SEARCH_MAX = 10_000  # queues, and deliveries of other consumers, that an ACK by message id looks at: about 1 ms

# --- what the broker holds for a peer ---------------------------------------------------------------------------------
OUTBOX_BYTES_MAX = 1 * MIB  # delivery to a socket pauses above this; the backlog stays in the log
IN_FLIGHT_MAX = 65_536  # deliveries that one subscription may leave unacknowledged, whatever it asks for
CHOKED_BYTES = 8 * MIB  # on top of the outbox (a run of deliveries, answers): a client that lets this gather is unread
RECV_BYTES = 64 * KIB  # per recv: larger buffers were not faster
RECV_VISIT_BYTES_MAX = 512 * KIB  # a busy connection gives way to the others after this much
TUNNEL_STEPS = 64  # records of TLS looked at together: some 40 us each, however empty they are
WEBSOCKET_STEPS = 1024  # messages of a WebSocket taken together: 0.1 ms compiled, 1 ms in Python
WEBSOCKET_FRAME_STEPS = 16  # steps of a frame that is not a whole message without an extension: some 15 us
SEAL_BYTES = 128 * KIB  # encrypted at a time: a tenth of a millisecond, and all that waits in that form
TLS_RECORD_BYTES = 8192  # sent: Net::Stomp reads so much at a time, and is blind for what a larger record leaves
DELIVERY_ROWS_BYTES_MAX = 16 * MIB  # rows of `record: deliveries` that are not stored yet, about 40,000: one batch
PENDING_APPEND_BYTES_MAX = 32 * MIB  # appended but not yet committed, all partitions; above it readers pause

# --- what the log holds -----------------------------------------------------------------------------------------------
BATCH_BYTES_MAX = 16 * MIB  # one write, one crc; also the most that recovery must read to judge a batch
BATCH_TOTAL_BYTES_MAX = 64 * MIB  # as stored, columns and all; a header that claims more is damage
BATCH_RECORDS_MAX = 65_536
BATCH_NAMES_MAX = 65_535  # distinct destinations: a u16 counts them
SEGMENT_BYTES = 128 * MIB
SEGMENT_BYTES_MIN = 64 * KIB
SEGMENT_BYTES_MAX = 2 * GIB  # retention and archiving work on whole segments: larger ones make both coarse
PARTIAL_CRC_BYTES_MIN = 64 * KIB  # of header blocks and bodies: less is read with the columns as fast as left out
SEGMENT_COMMITS = 65_536  # then it is sealed, if they are merged after that: 20 to 40 ms of a query over small ones
INDEX_INTERVAL_BYTES = 64 * KIB  # one index entry per this many bytes of log
REWRITE_BATCH_BYTES = 1 * MIB  # of a rewritten segment: zstd finds little more in larger ones, readers unpack all of it
REWRITE_BATCH_RECORDS = 4_096  # a millisecond of work at a time, for records of any size
REWRITE_STEP_RECORDS = 128  # of them between two looks at the time: a third of a millisecond
MERGED_COMMITS_BYTES = 16 * KIB  # a segment whose commits are smaller is merged: readers pay for each of them
MERGED_COMMITS_LOOKED_AT = 64  # at the beginning of a segment: they tell how large its commits are
MERGED_SEGMENT_BYTES_MIN = 4 * KIB  # a smaller one takes a block of the disk whatever is in it
REWRITE_SYNC_BYTES = 4 * MIB  # of a rewritten segment at a time, so that no sync of a log waits behind much of it
COMPACT_KEYS_MAX = 1 << 20  # keys in memory at a time, 48 bytes each; a log with more is compacted in several turns
CLOCK_HOLD_SECONDS_MAX = (
    3_600.0  # a wrong wall clock is put right within; a right one delays expiry no longer than that
)
LOG_AHEAD_SECONDS = (
    60.0  # of a log's last receive time: a smaller step back of the clock is over before anybody reads of it
)
TOMBSTONE_SECONDS = 86_400.0  # readers that have seen an earlier value must have time to meet it
RECLAIM_ROLL_BYTES = 4 * MIB  # an active segment of which queues have settled everything goes when it has this many
TAIL_BYTES_MAX = 32 * MIB  # recent batches kept in memory for readers, over all partitions
COLD_BYTES_MAX = 16 * MIB  # batches read back from disk, kept for the next reader, over all partitions
NEW_FILES_MAX = 64  # logs for which one group commit begins files
JOURNAL_FILE_BYTES = 64 * MIB  # of one file of the journal; a single entry may be larger
JOURNAL_FILE_BATCHES = 80_000  # then another file is begun: a start takes 8 us for each
JOURNAL_PASSED_BYTES_MIN = 1 * MIB  # what a group has for one log and is as large goes straight to its segment
JOURNAL_FILES_MAX = 4  # that wait for checkpoints; beyond that no more messages are read. A start reads them all
CHECKPOINT_THREADS = 4  # which sync segments: more are hardly faster
SYNC_ALL_LOGS_MIN = 256  # from so many on a checkpoint syncs the whole file system at once, where it tells of errors
NEW_FILES_TOGETHER_MAX = 4  # of one COMMIT's: a part of a millisecond each, and everybody's receipts wait
OPEN_LOGS_MAX = 4_096  # partitions whose files are open for writing: two descriptors each
OPEN_LOGS_FEW = 256  # ... so many before connections, where the system allows less
ZSTD_LEVEL = 3  # of sealed segments: higher levels cost several times as much for a few per cent
DEFERRED_MAX = (
    1_000_000  # messages sent with a delay, or refused, that are not due: 250 bytes each, all queues together
)
DEFERRED_OWN = 100  # ... but so many each log of a queue may have in any case: nobody fills it for everybody
DEFERRED_REFUSED_PART = 0.5  # of them those that were refused may not have more: there is room to send with a delay
READ_CHUNK_BYTES = 512 * KIB  # one cold read: large enough to be sequential, small enough to be fair
DAMAGES_REPORTED_MAX = 1_000  # damaged ranges that the log of the broker reports, each once; fsck lists any number
MEMORY_PARTITION_BYTES_MAX = 64 * MIB  # a memory partition without a retention of its own
MEMORY_BYTES_MAX = 256 * MIB  # all that clients can make grow together (``radiator/memory.py`` has the shares)
ANSWERS_BYTES_MAX = 1 * MIB  # beyond that, of a connection's unread answers of the admin channel. Two pages of a list
CURSORS_MAX = 131_072  # each has 24 bytes in a file that is mapped, and allocated, as a whole
SUBSCRIPTION_NAMES_MAX = 10_000  # durable names and groups: each retains logs, and all are in one file
SUBSCRIPTION_NAMES_PER_USER_MAX = 1_000  # of a user who may not do everything: others need some too
SUBSCRIPTION_NAME_BYTES_MAX = 240
PARTITIONS_PER_DESTINATION_MAX = 1_024
DEDUP_COUNT = 100_000  # ids that a partition remembers: up to 64 bytes each, twice as many at most
DEDUP_SCAN_BYTES_MAX = 64 * MIB  # of a log that a start reads for ids that the partition's file does not have
NAMES_SCAN_BYTES_MAX = 256 * MIB  # of logs whose list of names is not whole: read in one start, half a second of work
DEDUP_WINDOW_NS = 600 * 1_000_000_000  # longer than any client tries again for one message

DRAIN_SECONDS = 30  # of a drain without a period: the time that Kubernetes and systemd give a stop by default
DRAIN_SECONDS_MAX = 86_400  # a day: a longer period is a mistake
# --- what monitoring reads --------------------------------------------------------------------------------------------
METRICS_SERIES_MAX = 10_000  # of one answer of /metrics/detailed: 1 MB, and half a second for Prometheus

# --- what waits to be logged ------------------------------------------------------------------------------------------
LOG_LINES_MAX = 10_000  # of stdout and stderr each; what a burst brings is written a moment later
LOG_BYTES_MAX = 4 * MIB  # the same; lines that do not fit are dropped and counted
LOG_ROTATE_BYTES_MIN = 64 * KIB  # of logging.rotate_bytes: a write of the log thread fits into a file
LOG_KEEP_MAX = 1_000  # of logging.keep: each rotation renames so many files

# --- what is remembered to be fast -----------------------------------------------------------------------------------
HEAD_CACHE_ENTRIES_MAX = 24_576  # parsed header blocks, shared by all connections of one version; 1 KB each, if short
HEAD_CACHE_BYTES_MAX = 4 * MIB  # of these blocks together: 4,096 of the longest
HEAD_CACHE_BLOCK_BYTES_MAX = 1 * KIB  # longer blocks are parsed each time

# --- the archiver -----------------------------------------------------------------------------------------------------
ARCHIVE_UNIT_BYTES = 1 * GIB  # of one log that may become one file: some 10 s of work, which a kill may cost
ARCHIVE_SHARED_UNIT_BYTES_MAX = 16 * MIB  # what a log has more has a file of its own: reading that log reads no others
ARCHIVE_SHARED_LOGS_MAX = 4_096  # in a file: a commit names each of them, with some 200 bytes
ARCHIVE_COMMIT_BYTES = 256 * MIB  # of the log, in one commit; of merged files too: so much waits in the spool
ARCHIVE_FILE_SECONDS = 0.03  # times the files, if that is more than the next: a file takes 10 ms, and some have many
ARCHIVE_COMMIT_SECONDS = 3.0  # of work that is not committed: then a commit follows, or the next log is left to another
