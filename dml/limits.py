"""Tuning constants: thresholds, memory limits, batch sizes, threads, cache sizes and waits. Worker-safe.

Each constant documents its unit, the reason for its value, and the measurement behind it: a decision (`docs/decisions`)
or a walk (`benchmarks/walks.py` runs statements of sizes on both sides of a threshold). "Estimate" marks an unmeasured
value.

Three kinds of numbers stay where they are used: those that a format, a protocol or another project sets (field ids,
magic numbers, the defaults of Iceberg's and Spark's settings), the defaults of table properties (`dml/options.py`), and
estimates of the size of one object (`dml/manifests/weights.py`). So does the number of items that a message lists.

Read them as `limits.NAME` in the body of a function, so that a test can patch one for all of its users. Default
arguments and decorators are evaluated at import and would miss the patch.
"""

from typing import Final

# ---- Strategy of a statement ----------------------------------------------------------------------------------------

# The source of a MERGE, and how it reaches the tasks that join it with the target (decision 038). The walks
# `merge-source`, `merge-texts` and `merge-two-keys` cross these limits.

MAX_INLINE_SOURCE_BYTES: Final = 2**20
"""Source rows that are serialized with the task function. PySpark broadcasts functions above the same size."""

MAX_CACHED_SOURCE_BYTES: Final = 4 * 2**20
"""Sources that Spark caches for a fallback. Larger ones are evaluated again, which takes less time than caching
them."""

MAX_TRIED_SOURCE_BYTES: Final = 16 * 2**20
"""The limit on Spark Connect, and where Spark's estimate is unknown or above the limit.

Spark's estimate for a join or an aggregate may be a thousand times too high, so these sources are tried up to this
size.
"""

MAX_SHARED_SOURCE_BYTES: Final = 512 * 2**20
"""The limit where tasks and driver share files, divided by the concurrent tasks: each builds an index of the keys."""

MAX_CLUSTER_SOURCE_BYTES: Final = 64 * 2**20
"""The limit on a cluster: the driver collects the rows, and each worker process holds them twice. Decision 039."""

MAX_SOURCE_ROW_BYTES: Final = 1024
"""Bytes of text in a source row. A task receives up to 10,000 rows at once, and all rows of a batch of the target
may match one source row."""

MAX_DRIVER_SOURCE_BYTES: Final = 2 * 2**20
"""Files of a source that the driver reads itself. Above it, tasks read them in parallel, or Spark plans the source.
Estimate."""

MAX_DRIVER_SOURCE_FILES: Final = 8
"""The same in data files, which the driver reads one after the other. Estimate."""

MAX_DRIVER_SOURCE_ROW_BYTES: Final = 2**19
"""Decoded source rows before Spark has started: the function of the tasks carries them if the target is large.
Estimate."""

DRIVER_SOURCE_BATCH_ROWS: Final = 1024
"""Rows that the driver decodes of such a file before it compares their size with the limit. Estimate."""

MAX_DRIVER_BYTES: Final = 32 * 2**20
"""Files that a statement reads in this process if Spark has not started. Above it, Spark starts, in 4 to 8 seconds, and
its tasks read them. The driver reads and writes this much in about 2 seconds."""

MAX_DRIVER_FILES: Final = 64
"""The same in data files, which the driver reads one after the other. Estimate."""

MAX_LITERAL_VALUES: Final = 10_000
"""Constants in VALUES that the driver converts itself, for an INSERT or the source of a MERGE. Estimate."""

MAX_DRIVER_JOB_BYTES: Final = 4 * 2**20
"""Files that a statement reads, plus rows that it inserts, in the driver instead of in a Spark job. A job has a fixed
cost of about 0.1 seconds. Decision 065."""

MAX_DRIVER_JOB_FILES: Final = 16
"""The same limit in data files. Decision 065."""

MAX_RANGE_SOURCE_BYTES: Final = 16 * 2**20
"""Sources whose new rows are one range, which one task writes. Above it, Spark joins and makes the ranges."""

# The keys of a source that Spark joins (decision 011).

MAX_SOURCE_KEYS: Final = 1_000_000
"""Keys that are sent to the reader of the target. Sending more would cost more than it saves."""

MAX_INTEGER_SOURCE_KEYS: Final = 4_000_000
"""The same where the key is one integer or date: 8 bytes each, and tasks need no hash table to look one up.
Estimate."""

MAX_PRUNING_SOURCE_BYTES: Final = 4 * 2**20
"""Sources that are evaluated beforehand for keys that only prune files, whatever the size of the target."""

PRUNING_SOURCE_DIVISOR: Final = 8
"""Larger sources are evaluated for pruning up to the size of the target divided by this.

Caching a source row and collecting its key takes about twice as long as reading a target row. Caching 1.5 million rows
added 2.5 s to a join of 2.5 s, and the keys pruned nothing (decision 011).
"""

# How the rows of a change, a scan or an INSERT are divided among tasks.

MIN_INSERTS_PER_TASK: Final = 100_000
"""New rows that justify another task, where tasks insert the unmatched source rows of a MERGE. Walk `merge-source`,
decision 038."""

MAX_UNSCATTERED_INSERTS: Final = 10_000
"""New rows that go to the tasks of a MERGE joined by Spark without a shuffle of their own: more tasks would write more
small files.

`MIN_INSERTS_PER_TASK` is the measured counterpart for MERGEs that tasks join. This is an estimate.
"""

MIN_TASK_BYTES: Final = 8 * 2**20
"""Bytes of files that justify another writing task, which starts a Python worker and writes files of its own. Walk
`update-tasks`."""

MIN_TASK_FILES: Final = 8
"""The same in files, so that a change of a few small files does not add a file for each core. Estimate."""

MIN_COPIED_ROW_GROUP_BYTES: Final = 8 * 2**20
"""Average compressed size of the row groups that a compaction copies byte for byte. Smaller ones are encoded again into
full ones, because each row group costs a reader time. Other engines use the same size (decision 054)."""

MAX_COPIED_ROW_GROUP_RATIO: Final = 2
"""A larger row group, relative to `write.parquet.row-group-size-bytes`, is encoded again. Estimate."""

MIN_RANGED_BYTES: Final = 32 * 2**20
"""Files of a group that are sorted in ranges, by several tasks, if they become several files. A smaller group is
sorted by one task: the ranges take two more stages. Decision 055."""

SAMPLED_ROW_GROUPS_PER_RANGE: Final = 8
"""Row groups whose keys are read for the bounds of a range. In sorted files each has keys of its own, so that a range
may differ from its share by an eighth. Estimate."""

SAMPLED_KEYS_PER_ROW_GROUP: Final = 200
"""Keys of each of these row groups. Estimate."""

MIN_UNEVEN_FILES_PER_TASK: Final = 4
"""New files of a compaction that a task closes by their size, where old files cannot be cut at row groups: each such
task leaves a remainder. Estimate."""

BATCHES_AHEAD: Final = 8
"""Batches of `SPARK_BATCH_ROWS` that a task of a compaction decodes ahead of its writer. Estimate."""

MAX_TASK_IMBALANCE: Final = 1.1
"""Factor by which the heaviest task may grow to keep the files of a partition together. Estimate."""

MAX_PLACED_FILES: Final = 1_000
"""Files whose tasks Spark's query lists one by one. Above it, consecutive files share a task, because Spark would have
to parse the list with the query. Estimate."""

CONNECT_PARALLELISM: Final = 8
"""Concurrent tasks to assume on Spark Connect, where the client cannot ask for them. Estimate."""

# Work that the driver does itself instead of starting a Spark job, which took 50 ms (decision 038).

MAX_DRIVER_INSERT_BYTES: Final = 4 * 2**20
"""New rows of a MERGE that the driver writes, in the time that a job takes to start. Walk `merge-new`, decision 038."""

MAX_DRIVER_PROBE_BYTES: Final = 16 * 2**20
"""New files of other writers that the driver reads to compare rows at a conflict. Above it, Spark's tasks read them in
parallel. Estimate."""

MAX_DRIVER_MANIFEST_BYTES: Final = 2**20
"""Manifests that the driver reads for a metadata table. A Spark job takes as long as some thousand entries (decision
019)."""

MAX_KNOWN_VALUE_FILES: Final = 20_000
"""Files whose metrics answer `count`, `min` and `max` without a job. Checking more takes as long as a job.
Estimate."""

MAX_LITERAL_PLAN_NODES: Final = 8
"""Nodes of a plan that are checked for literals only: each check is a call to the JVM. Estimate."""

# Whether Spark's own Parquet reader reads a scan (decision 023; walks `scan-vectorized` and `scan-files`).

MIN_SPARK_READER_BYTES: Final = 6 * 2**20
"""Below it, Python workers finish before Spark has prepared the job for its own reader. The two are equal at 2 to 4 MiB
for six columns, at 4 to 6 MiB for one or two numbers, and at 15 MiB for one long string."""

MAX_SPARK_READER_FILES: Final = 512
"""Above it, describing the files to the JVM, half a millisecond each, takes longer than starting Python workers."""

SAMPLED_FOOTERS: Final = 4
"""Footers that are read to guess the share of rows that a filter keeps. More would add little. Estimate."""

MIN_SPARK_READER_ROW_SHARE: Final = 0.3
"""Share of rows that a filter must keep. Spark's reader is faster from about a fifth of the rows on; below that,
filtering before rows enter the JVM is faster."""

MIN_SPARK_READER_ROW_GROUP_SHARE: Final = 0.7
"""Share of row groups that may have a match. Below it, skipping the others is faster, and Spark's reader cannot skip
them here."""

# How the changes of a data file are written (decisions 025 and 029).

MIN_SPLICED_ROW_RATIO: Final = 0.01
"""Share of updated rows below which marking is cheaper than splicing, which encodes all rows of the changed columns."""

MAX_SPLICED_BYTES_RATIO: Final = 0.5
"""Share of new bytes above which splicing saves too little."""

# ---- Pruning and conditions -----------------------------------------------------------------------------------------

MAX_LISTED_KEYS: Final = 200
"""Distinct keys that are listed individually to prune files; more become ranges. PyIceberg prunes by at most as many
values of IN."""

MAX_KEY_RANGES: Final = 16
"""Ranges of keys. Each costs two comparisons per file. Estimate."""

KEY_RANGE_PARTS: Final = 1024
"""Equal parts of the span of the keys. One pass finds the minimum and the maximum in each. Estimate."""

MIN_KEY_GAP: Final = 1 / 100
"""Fraction of the span that separates two ranges. Random keys leave narrower gaps throughout. Estimate."""

MAX_PRUNING_PARTITIONS: Final = 500
"""Partitions that a manifest is tested against. Testing it against more costs more than opening it. Estimate."""

MAX_CONDITION_NODES: Final = 20_000
"""Nodes of a condition that is pushed down. Pruning by a larger one would be slow. Estimate."""

MAX_CONDITION_DEPTH: Final = 200
"""Depth, and conjuncts, of a condition that is pushed down: expressions are walked recursively, here and in PyIceberg,
and Python's default stack has 1,000 frames."""

MAX_TERM_DEPTH: Final = 20
"""Depth of an expression that tasks compute: it is walked recursively, in the driver and in tasks. Estimate."""

MAX_CONDITION_NESTING: Final = 5
"""Conditions in values in conditions, as in `CASE WHEN ... END = 1`. Estimate."""

MAX_CASE_BRANCHES: Final = 100
"""Branches of a CASE that tasks compute: each is computed for all rows of a batch. Estimate."""

MAX_TERM_VALUES: Final = 100
"""Values of an IN that tasks compute. Estimate."""

MAX_LISTED_BUCKETS: Final = 10_000
"""Buckets of a `bucket(n, column)` that are compared by `<` or `>`, and so are listed. Estimate."""

MAX_TRANSFORMED_VALUES: Final = 100
"""Values of an IN or NOT IN over a transform, each of them a nested condition. More are left to Spark. Estimate."""

MAX_SINGLE_VALUES: Final = 8
"""Values of an IN that are read from Spark one by one. More are taken from the text of the expression, in one call
to the JVM. Estimate."""

MAX_CALL_NODES: Final = 500
"""Nodes of a function call in Spark's plan that are examined to find its column; `bucket` of a string has fewer."""

MAX_COLUMN_DEPTH: Final = 100
"""Depth of a column expression of PySpark 3.5 that is translated: Python's stack must not overflow during a call to the
JVM."""

# ---- Memory of a task -----------------------------------------------------------------------------------------------

# Batches. Arrow's kernels are efficient from a few thousand rows.

WORKER_BATCH_ROWS: Final = 1000
"""Rows per batch that Spark sends to a Python worker without a byte limit. Writing 4 million rows takes up to a tenth
longer than with 10,000; with 500, a third to a half longer (decision 066)."""

MAX_WORKER_ROW_BYTES: Final = 1 << 16
"""Bytes of strings and binary values in a row of such a batch: 1,000 rows have at most 64 MiB, Spark's own limit."""

MAX_CHECKED_COLUMNS: Final = 16
"""String and binary columns whose lengths are checked for each row. With 8, writing takes four fifths of the time; with
24, a tenth more; and with 500, up to three times as long (decision 066)."""

MAX_EXAMINED_EXPRESSIONS: Final = 64
"""Expressions of a plan node that are searched for Python functions, at a tenth of a millisecond each."""

SPARK_BATCH_ROWS: Final = 1 << 15
"""Rows per batch that a task passes to Spark. A larger batch takes proportionally more memory. Estimate: speeds were
compared on a busy machine only."""

NARROW_BATCH_ROWS: Final = 1 << 16
"""Rows per batch where few narrow columns of a file are read: paths, positions and keys of delete files, or none to
count rows. Estimate."""

INSERT_BATCH_ROWS: Final = 1 << 17
"""Rows per batch that a MERGE inserts from its source. Estimate."""

UPDATE_BATCH_ROWS: Final = 1 << 18
"""Updated rows of a file that merge-on-read collects before it reads their old values: each read has a fixed cost.
Estimate."""

SPLIT_BATCH_ROWS: Final = 1 << 17
"""Rows that are split by partition at once.

Batches of 10,000 rows, split over a hundred partitions, would be pieces of a hundred rows, and a piece costs more than
its rows.
"""

SPLIT_BATCH_BYTES: Final = 16 * 2**20
"""The same in bytes, for long rows. Estimate."""

CURVE_BATCH_ROWS: Final = 1 << 14
"""Rows whose keys on a space-filling curve are computed at once: their arrays fit into the processor's cache.
Estimate."""

SHUFFLED_PIECE_BYTES: Final = 1 << 14
"""Rows that a sort in ranges passes through Spark's shuffle as one value. Spark sends Python 10,000 values at a time,
so a task receives up to 160 MB at once. Decision 055."""

SHUFFLED_PIECES: Final = 256
"""Such values that a task passes to Spark at once. Estimate."""

SORTED_BATCH_ROWS: Final = 1 << 16
"""Rows of a piece of sorted rows, which are merged piece by piece. Estimate."""

GROUP_BATCH_ROWS: Final = 1 << 18
"""Rows, or groups, per call of Arrow's `group_by`. Walk `scan-groups`, decision 035."""

GROUP_BATCH_BYTES: Final = 64 * 2**20
"""The same in bytes, for long rows."""

MAX_GROUP_SHARE: Final = 0.5
"""Groups per row up to which partial aggregation is worth its time: Spark aggregates in any case. Decision 035."""

MAX_VALUES_HASHED_ALONE: Final = 8
"""Long values of a batch whose bytes are hashed one value after the other: fewer values are not worth array
operations for every 16 bytes. Estimate."""

HASHED_PIECE_BYTES: Final = 2**20
"""Bytes of a long value that are prepared for hashing at once, a multiple of 16. They take ten times as much memory
as Python integers. Estimate."""

# Buffered rows.

MAX_SPLIT_BUFFER_BYTES: Final = 64 * 2**20
"""Rows that a sort in ranges sorts and cuts at once. Estimate."""

MAX_SORT_BUFFER_BYTES: Final = 256 * 2**20
"""Rows that are sorted in memory. More are sorted in runs, which are spilled. Estimate."""

MAX_MERGED_FILES: Final = 64
"""Sorted files that a task merges, with a batch of each in memory. Rows of more files are sorted. Estimate."""

MAX_MERGED_KEY_BYTES: Final = 256 * 2**20
"""Sort keys of the rows of these files, which are all in memory. Estimate."""

MAX_PARTITION_BUFFER_BYTES: Final = 512 * 2**20
"""Rows that a task buffers over all partitions, to write larger batches of each. Estimate."""

KEPT_BUFFER_SHARE: Final = 0.75
"""Share of `MAX_PARTITION_BUFFER_BYTES` that stays buffered when memory is freed.

Freeing sorts all partitions by size. With less slack, thousands of partitions would be sorted for every few batches.
"""

MAX_UNOPENED_FILE_BYTES: Final = 16 * 2**20
"""Rows of a partition that are buffered before its file is opened, so that thousands of small partitions do not keep
files open until the task ends. Estimate."""

MAX_OPEN_FILES: Final = 256
"""Data files that a task has open. Systems allow a process 1,024 files, and each has a row group in memory.
Estimate."""

MAX_HELD_CHANGE_BYTES: Final = 64 * 2**20
"""Changes of a file, or of one of its row groups, that are held in memory before the writer selects how to write them.
With more, the file or row group is rewritten (decisions 025 and 029). Estimate."""

MAX_SPLICED_BYTES: Final = 256 * 2**20
"""New columns of a row group that is spliced: they are in memory at once (decision 025). Estimate."""

MAX_APPENDED_BYTES: Final = 16 * 2**20
"""New rows of a task that are appended to spliced files, held until then. More justify a file of their own.
Estimate."""

MAX_JOINED_GROUP_BYTES: Final = 2 * 2**20
"""Decoded size of the row groups at the end of a spliced file that are encoded again as one, so that a file to which
small MERGEs append rows does not get thousands of row groups. Encoding takes about 10 ms. Estimate."""

MAX_OPEN_SPLICED_FILES: Final = 16
"""Spliced files that wait for the new rows of their partition: each holds a reader and a writer. Estimate."""

# Tables for the lookup of integer keys: an array with an element for each integer of the span. Without one, keys are
# searched in sorted order.

MAX_PLACE_SPAN: Final = 1 << 24
"""Integers in the span of keys whose places are looked up: 64 MiB at 4 bytes each."""

MAX_MEMBER_SPAN: Final = 1 << 26
"""Integers in the span of keys that are tested for membership: 64 MiB at 1 byte each."""

MIN_TABLE_SPAN: Final = 1 << 20
"""Integers in the span up to which a table is built for any number of keys: filling it takes about a millisecond.
Estimate."""

PLACE_SPAN_PER_KEY: Final = 8
"""Integers in the span per key up to which a table of places is made. Filling a sparser one takes longer than the
searches. Estimate."""

MEMBER_SPAN_PER_KEY: Final = 256
"""The same for a table of members, whose elements are smaller. Estimate."""

MAX_UNORDERED_SEARCH_KEYS: Final = 8192
"""Keys that fit the processor's first caches (64 KiB): values are searched among them without being sorted before."""

MAX_ARROW_SET_VALUES: Final = 4096
"""Keys whose hash table Arrow rebuilds for every batch, to exclude most rows before the others are hashed. Building it
takes 0.1 ms for this many strings; hashing 131,072 strings takes 14 ms."""

# Reads.

AVRO_READ_BYTES: Final = 2**20
"""Bytes that are read from an Avro file, or decompressed of a block, at once. Estimate."""

FOOTER_READ_BYTES: Final = 64 * 2**10
"""Bytes at the end of a Parquet file that are read at once: most footers fit, and a second request to an object store
costs its latency. Estimate."""

MAX_READ_GAP_BYTES: Final = 64 * 2**10
"""Bytes between two ranges of a file that are read with them, as one request: the latency of an object store is longer
than the transfer of this many bytes. Estimate."""

MAX_JOINED_READ_BYTES: Final = 8 * 2**20
"""Bytes of ranges that are read as one. Estimate."""

COPY_BYTES: Final = 8 * 2**20
"""Bytes of column chunks that are copied at once into a spliced file (decision 025). Estimate."""

# New files.

DICTIONARY_SAMPLES: Final = 8
"""Positions in the first row group of a Parquet file at which values are sampled to select the columns that get a
dictionary. Estimate."""

DICTIONARY_SAMPLE_ROWS: Final = 2048
"""Rows that are sampled at each of these positions. Estimate."""

MAX_DICTIONARY_SHARE: Final = 0.4
"""Share of distinct values in the sample up to which a column gets a dictionary. Estimate."""

MANIFEST_BLOCK_ENTRIES: Final = 1000
"""Entries in an Avro block of a manifest: enough to compress well, few enough to decode one block at a time.
Estimate."""

MANIFEST_REWRITE_ENTRIES: Final = 200_000
"""Files that a rewrite of manifests sorts in memory at once, about 1.6 kB each with six columns. With more, it counts
the files of each partition first, and reads manifests once for each group of that size. Estimate."""

CHUNK_ROWS: Final = 2**20
"""Rows in a chunk of a new position delete file. Estimate."""

MAX_CHUNK_BYTES: Final = 2**30
"""Paths in such a chunk: half of what an Arrow string array can hold."""

MAX_FILLED_BITMAPS: Final = 2**16
"""Bitmaps of a deletion vector up to which absent ones are written empty, as Iceberg's Java library does, so that equal
sets are equal bytes.

The last of them holds row 2**48. Above it absent bitmaps are left out: a few positions must not become gigabytes.
"""

# ---- Memory of the JVM ----------------------------------------------------------------------------------------------

JVM_MEMORY_PERCENT: Final = 40
"""Share of the memory of a single machine for the JVM of a new session, which includes the executors. The rest is for
Python workers and the cache of the operating system. Estimate."""

MIN_JVM_MIB: Final = 1024
"""Memory for the JVM on small machines, in mebibytes. Spark itself needs some hundreds. Estimate."""

MAX_JVM_MIB: Final = 16 * 1024
"""Memory for the JVM on large machines, in mebibytes. Estimate."""

# ---- Untrusted numbers in files -------------------------------------------------------------------------------------

# Limits on the work that a number in a file can cause, since files may be damaged or hostile. A file beyond a limit is
# rejected, or takes the general path for reading or rewriting. `tests/damage` has files that try to exceed them.

MAX_DECOMPRESSED_BYTES: Final = 2**30
"""Bytes of a metadata file, or of a block of an Avro file, after decompression (decision 042)."""

MAX_DECOMPRESSION_RATIO: Final = 256
"""Decompressed bytes for each compressed one: metadata holds names, which no codec shortens further."""

FREE_METADATA_BYTES: Final = 2**26
"""Decompressed bytes of a metadata file that need no such ratio."""

FREE_BLOCK_BYTES: Final = 2**24
"""The same for a block of an Avro file. Lower than `FREE_METADATA_BYTES`: JSON repeats its keys in each snapshot, and
compresses better."""

MAX_AVRO_DEPTH: Final = 64
"""Nesting of an Avro schema, which is walked recursively."""

MAX_EMPTY_AVRO_ITEMS: Final = 2**16
"""Items of a block of an Avro list that take no bytes, like nulls. A list may claim 50 million of them (decision
042)."""

MAX_EMPTY_AVRO_RECORDS: Final = 2**20
"""Records of an Avro file in blocks with less than a byte for each. They hold nothing but nulls, so a block of a few
bytes may claim any number of them; decoding a million takes a second (decision 043)."""

MAX_PARTITION_SUMMARIES: Final = 1 << 12
"""Partition summaries in a line of a manifest list, and thus fields of a partition spec.

The path of a data file has a folder for each field, so a path of 4,096 bytes has room for a quarter of these fields.
"""

MAX_FOOTER_BYTES: Final = 4 * 2**20
"""Footers of Parquet files that are spliced. An empty struct of one byte takes 70 in memory, so larger ones are
rewritten (decision 025)."""

MAX_COPIED_FOOTER_BYTES: Final = 16 * 2**20
"""Footers of the Parquet files whose row groups become one new file. They are in memory at once."""

MAX_PAGE_INDEX_BYTES: Final = 128 * 2**20
"""A page index or bloom filter of a column chunk that is spliced."""

MAX_PAGE_HEADER_BYTES: Final = 2**20
"""The header of a Parquet page, which holds statistics of two values."""

MAX_ROW_GROUP_ROWS: Final = 2**24
"""Rows in a row group of a Parquet file that is spliced: positions and masks of these are in memory at once."""

MAX_PARQUET_DEPTH: Final = 200
"""Nesting of a Parquet schema, which is walked recursively."""

MAX_THRIFT_DEPTH: Final = 24
"""Nesting of Thrift structs in a Parquet footer. Unknown fields are skipped recursively."""

BITMAP_SCAN_RECORDS: Final = 4096
"""Empty bitmaps of a deletion vector that are recognized at once. Estimate."""

# ---- Messages between driver and tasks ------------------------------------------------------------------------------

MESSAGE_COMPRESSION_LEVEL: Final = 1
"""zlib's level for what is sent to tasks: paths repeat and shrink to a tenth, and higher levels gain little."""

SCAN_TASKS_PER_BLOCK: Final = 64
"""Scan tasks that are pickled together: a worker unpickles only the blocks that it needs. Estimate."""

MAX_TASK_POSITION_BYTES: Final = 8 * 2**20
"""Positions of changed rows that a task reports. Above it, a conflict is decided by files and not by rows (decision
014). Estimate."""

MAX_ALL_REPORT_BYTES: Final = 256 * 2**20
"""Positions and origins that all tasks report. Spark aborts jobs whose results exceed
`spark.driver.maxResultSize`, 1 GiB by default."""

MAX_TASK_ORIGIN_RUNS: Final = 2**21
"""Runs of rows with neighbouring origins that copy-on-write remembers for a rewritten file. Rows that sorting has
scattered are not worth more. Estimate."""

MAX_TASK_ORIGIN_BYTES: Final = 2 * 2**20
"""Encoded origins that a task reports (decision 014). Estimate."""

MAX_ROW_MAP_BYTES: Final = 2**20
"""Row map in the footer of a compacted file (decision 052). Every reader of the file reads its footer. A file of
10 million rows with 1 % scattered deletes takes 280 KB. Estimate."""

MAX_ROW_IDS_READ: Final = 10**8
"""Row ids of new files that a commit reads to find rows that a rewrite has moved (decision 056): a second or two, and
8 bytes of each. Above it, the statement runs again. Estimate."""

CONVERSION_ATTEMPTS: Final = 3
"""Attempts to convert equality deletes if other commits conflict, each on the newest snapshot. Estimate."""

MAX_NARROW_TASK_NUMBERS: Final = 2**20
"""Rows of a placeholder that tells a Spark Connect server how large a scan is, before a wide NULL column is added to
them. Estimate."""

MAX_TASK_NUMBERS: Final = 2**24
"""Rows of such a placeholder. The server counts them for every scan, in a few hundredths of a second."""

# ---- Rows that the driver writes for tasks --------------------------------------------------------------------------

# Small outputs of tasks become one file per partition, written by the driver (decision 024, walk `insert-held`). What
# the driver inserts in a MERGE has a limit of its own, `MAX_DRIVER_INSERT_BYTES`: there a Spark job is the alternative,
# here it is a small file.

MAX_TASK_HELD_BYTES: Final = 2**20
"""Rows that a task leaves to the driver, which writes them in tens of milliseconds."""

MAX_ALL_HELD_BYTES: Final = 16 * 2**20
"""Rows that all tasks together leave to the driver, approximately: the limit of each task is this divided by their
number."""

# ---- Threads --------------------------------------------------------------------------------------------------------

READ_THREADS: Final = 8
"""Files that the driver reads in parallel. They wait for storage most of the time, so cores do not matter (decision
034)."""

MAX_DRIVER_IMPORT_FILES: Final = 1000
"""Files that an import examines on the driver: 1,000 of 20 columns took 1.2 s of one core. Above it, tasks do."""

IMPORT_TASK_FILES: Final = 200
"""Files that one task of an import examines. Estimate."""

MAX_THREAD_GROUPS: Final = 256
"""Groups of manifests that are submitted to these threads: submitting thousands one by one takes longer than finding
them in the cache. Estimate."""

UPLOAD_THREADS: Final = 16
"""Files that the driver writes to an object store in parallel (decision 024). Estimate."""

DELETE_THREADS: Final = 8
"""Orphan files that are deleted in parallel by default. Estimate."""

ORPHAN_BATCH_FILES: Final = 1000
"""Orphan files that are deleted before the newest metadata is read again. Estimate."""

FILE_CHECKS_PER_HOST: Final = 2
"""Tasks per host that check whether the hosts share files. Spark assigns tasks to executors in turn, so with extra ones
each host gets one."""

MIN_FILE_CHECKS: Final = 2
"""Tasks that check this where the hosts are unknown."""

# ---- Caches ---------------------------------------------------------------------------------------------------------

MANIFEST_CACHE_BYTES: Final = 768 * 2**20
"""Manifests that a catalog keeps by default (`io.manifest.cache.max-total-bytes`): a million files of six columns fit
(decision 034)."""

MAX_ENTRY_OBJECTS: Final = 200
"""Entries of a manifest that are kept as objects. Arrays of more take less memory and are pruned faster (decision
027)."""

MAX_ENTRY_OBJECT_BYTES: Final = 1_000
"""Bytes of an encoded entry up to which it is kept as an object, plus `MAX_ENTRY_OBJECT_COLUMN_BYTES` for each column.

Longer entries are rare. As objects they take about forty times as many bytes.
"""

MAX_ENTRY_OBJECT_COLUMN_BYTES: Final = 100
"""Bytes of the metrics of a column in an encoded entry."""

LINE_CACHE_BYTES: Final = 2**26
"""Decoded lines of manifest lists that are kept, and as many encoded ones. A line takes about a kilobyte (decision
034). Estimate."""

MAX_CACHED_LINE_BYTES: Final = 2**11
"""A longer line is not cached: it would evict many others. Estimate."""

CACHED_AVRO_SCHEMAS: Final = 64
"""Schemas of manifests and manifest lists whose readers are kept. A table has about one of each. Making a reader takes
longer than reading a small file, a fifth of the driver's time in a statement of ten rows."""

MAX_CACHED_SCHEMA_BYTES: Final = 2**16
"""A longer schema is not cached; no engine writes one. Estimate."""

MIN_CACHED_HISTORY: Final = 50
"""Snapshots from which their parsed form is kept. With 400 of them, a table loaded in 10 ms instead of 19."""

SNAPSHOT_CACHE_CHARACTERS: Final = 32 * 2**20
"""Text of snapshots that is kept with their parsed form; a snapshot has about 1,300 characters. Estimate."""

CACHED_DELETE_FILES: Final = 8
"""Delete files of whole partitions that a task keeps for its next data files. Estimate."""

MAX_CACHED_DELETE_ROWS: Final = 2**21
"""Rows of a delete file that is kept. Estimate."""

STREAM_CACHE_FILES: Final = 20_000
"""Entries of manifests that a stream keeps, so that a snapshot read in many batches is listed once.
Estimate."""

STREAM_CACHE_SNAPSHOTS: Final = 1_000
"""Snapshots whose manifest lists a stream keeps. Estimate."""

CACHED_TASK_NUMBERS: Final = 64
"""Numbers of tasks for which a session keeps the leaf of a scan's plan. Estimate."""

CACHED_STATEMENTS: Final = 64
"""Parsed statements that are kept: each is looked up several times while it runs. Estimate."""

CACHED_REFERENCES: Final = 16
"""Statements whose table references are kept: they are looked up for each replacement. Estimate."""

CACHED_FILE_IOS: Final = 16
"""Storage configurations whose FileIO is kept: a new one would open its own connections. Estimate."""

CACHED_JAVA_TYPES: Final = 256
"""Spark data types that are kept as Java objects. Estimate."""

CACHED_FIELD_ID_CHECKS: Final = 512
"""Files for which the presence of field ids is remembered: checking one reads a footer. Estimate."""

CACHED_PARTITION_PATHS: Final = 4096
"""Partitions of which a task keeps the path. Estimate."""

CARRIED_EXCEPTIONS: Final = 64
"""Python exceptions that are kept while Java exceptions represent them on the way through the JVM. Estimate."""

MIN_CALLERS_TO_CLOSE: Final = 16
"""JVM threads that have called Python before connections of ended threads are closed: each connection keeps a thread
and a socket. Estimate."""

# ---- Manifests that are decoded in lockstep (decision 034) ----------------------------------------------------------

MIN_LOCKSTEP_ENTRIES: Final = 200
"""Entries of manifests that are decoded in lockstep. Decoding fewer one by one is faster (decision 043)."""

MANIFEST_GROUP_ENTRIES: Final = 2000
"""Entries of small manifests that are decoded together: the fixed cost of lockstep, 2 ms, is a quarter of their time
then (decision 043)."""

MIN_LOCKSTEP_LINES: Final = 100
"""Lines of a manifest list that are decoded in lockstep. Decoding fewer one by one is faster."""

MAX_LOCKSTEP_ATTEMPTS: Final = 8
"""Attempts to find where the records of a group of blocks start, before they are decoded one by one. Estimate."""

LOCKSTEP_EXAMPLES: Final = 16
"""Blocks whose first paths are used to find those of the other records. Estimate."""

LOCKSTEP_GROUP_BYTES: Final = 2**24
"""Bytes of blocks that are decoded together, and of small manifests. Estimate."""

MAX_LOCKSTEP_BLOCK_BYTES: Final = 2**26
"""Bytes of a block. A longer one is decoded record by record. Estimate."""

MAX_LOCKSTEP_RECORDS: Final = 300_000
"""Records, and offsets that look like one, that are decoded together: each takes memory in every step. Estimate."""

MAX_LOCKSTEP_ITEMS: Final = 1 << 14
"""Pairs in a map of a record. Each is a step for all records, so a record with more counts as damaged. Estimate."""

MAX_LOCKSTEP_STEPS: Final = 60_000
"""Steps for all maps and lists of the records. A table of 1,000 columns takes 6,000."""

# ---- Maintenance (decision 053) -------------------------------------------------------------------------------------

MAINTENANCE_PASSES: Final = 3
"""Times that one run goes through the steps: a step may leave work to an earlier one, such as a new small manifest."""

MAINTENANCE_MIN_GAIN: Final = 2
"""A rewrite pays if it leaves at most one file for this many. With less, a rewrite whose result is smaller than
estimated would be worth another one."""

MAINTENANCE_MIN_MANIFESTS: Final = 20
"""Manifests below which planning is fast: they are read in parallel, in two rounds of `READ_THREADS`. Estimate."""

MAINTENANCE_MANIFEST_RATIO: Final = 4
"""Manifests for each one of the target size, from which they are rewritten. Estimate."""

MAINTENANCE_OVERLAP_DEPTH: Final = 4.0
"""Average overlap from which files are sorted again, or manifests clustered. New files that are compacted and sorted
among themselves leave a depth of 2. Estimate."""

MAINTENANCE_EQUALITY_DELETE_FILES: Final = 10
"""Delete files of a data file from which it is rewritten, in tables with equality deletes, whose rows metadata does not
count. Estimate."""

MAINTENANCE_STALE_STATISTICS: Final = 0.1
"""Fraction of changed rows from which statistics are computed again. Estimate."""

MAINTENANCE_LEASE_SETTLE_SECONDS: Final = 1.0
"""Wait after taking the lease from a REST catalog, in which other commits that did not see it land. Estimate."""

MAINTENANCE_COMMIT_BYTES: Final = 8 * 2**30
"""Bytes of old files that are rewritten between two commits, and two looks at the budget and the lease. Estimate."""

TRIGGERED_COMMIT_BYTES: Final = 2**30
"""The same for a compaction after a commit, whose budget is a minute, and the default size of its groups. Estimate."""

# ---- Waiting and retrying -------------------------------------------------------------------------------------------

RETRY_JITTER: Final = 0.1
"""Random share that is added to a wait, so that writers do not retry at the same moment; as in Iceberg's `Tasks`."""

STORAGE_RETRIES: Final = 3
"""Retries of deleting a file that is no longer needed. Estimate."""

STORAGE_MIN_WAIT_MS: Final = 100
"""First wait between them, in milliseconds; it doubles. Estimate."""

STORAGE_MAX_WAIT_MS: Final = 30_000
"""Longest wait between them, in milliseconds. Estimate."""

STORAGE_RETRY_SECONDS: Final = 120.0
"""Time for retries of all files of one call. Estimate."""

CATALOG_LOCK_SECONDS: Final = 60
"""Wait for another process that writes to the embedded catalog. A write takes milliseconds. Estimate."""

DATABASE_CONNECT_SECONDS: Final = 5
"""Wait for an answer from a PostgreSQL server, whose drivers would otherwise block forever. Estimate."""

REST_CONNECT_MS: Final = 10_000
"""Wait for a connection to a REST catalog, in milliseconds. PyIceberg has no limit. Estimate."""

REST_RESPONSE_MS: Final = 60_000
"""Wait for a response from a REST catalog that has responded before, in milliseconds. Estimate."""

REST_SIGNED_RETRIES: Final = 1
"""Retries of a signed request to a REST catalog, each after another time-out; PyIceberg's default is 10. Estimate."""

JAVA_VERSION_SECONDS: Final = 30
"""Wait for `java -version`. Estimate."""

TASK_END_SECONDS: Final = 60.0
"""Wait for the tasks of a failed job to end. Spark kills a worker two seconds after its task was stopped (decision
017)."""

JOB_REPORT_SECONDS: Final = 0.5
"""Time until Spark's status tracker reports a job that has started. Estimate."""

JOB_POLL_SECONDS: Final = 0.05
"""Interval at which the status tracker is polled. Estimate."""

LATE_JOB_SECONDS: Final = 120
"""Time after an interrupt in which jobs of the statement are cancelled: the JVM may still be planning the query, and
submit them later. Estimate."""

LATE_JOB_POLL_SECONDS: Final = 0.2
"""Interval at which they are cancelled. Estimate."""

CONNECT_END_SECONDS: Final = 2.0
"""Wait for the tasks of a failed job on Spark Connect, where a client cannot see them (decision 017)."""

JVM_END_SECONDS: Final = 0.2
"""Wait for the end of a JVM that has closed its connections. Estimate."""

SERVER_POLL_SECONDS: Final = 1.0
"""Interval at which `dml serve` checks its server. Estimate."""

SERVER_DRAIN_SECONDS: Final = 20
"""Wait of `dml serve` for running statements when it stops: less than the 30 seconds after which Kubernetes kills a
container. Estimate."""

PROGRESS_DELAY_SECONDS: Final = 1.0
"""Time until a progress bar appears, so that short statements show none. Estimate."""

PROGRESS_POLL_SECONDS: Final = 0.25
"""Time between two updates of a progress bar. Estimate."""

SHELL_NAMES_SECONDS: Final = 60.0
"""Time for which the shell's completion keeps names of catalogs that other programs may change. Estimate."""

SHELL_HISTORY_CHARS: Final = 10_000
"""Longest input that the shell's history keeps, which is read whole at each start. Estimate."""

__all__ = [name for name in dict(globals()) if name.isupper()]
