"""Copy-on-write that copies what a statement leaves as it is, byte for byte: which files, and their columns. Worker.

Input: a data file and its changes. Output: a data file with the rows that stay, in their order. Row groups in which
nothing changes are copied; so are, in those in which rows are only updated, the columns that are not assigned. Only
the rest, and the columns of row lineage, are decoded and encoded (`dml.write.file_splice`). Spec: "Row Lineage".

What of this a file allows is decided by its footer and its changes, before anything is written; all other files are
rewritten.
"""

from contextlib import ExitStack
from typing import Final

from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanTask
from dml.model.write_task import SplicedDataFile
from dml.options import WriteOptions
from dml.read.target_files import TargetFiles
from dml.splice.footer import Footer
from dml.write.column_chunks import written_footer
from dml.write.delta_rows import ChangeCursor
from dml.write.file_layout import FileLayout
from dml.write.file_splice import FileSplice, Spliced, SpliceJob
from dml.write.splice_columns import SpliceColumns, new_bytes, new_bytes_ratio, splice_columns
from dml.write.spliceable import opened, read_offset_indexes

__all__ = ["Splicer", "may_splice"]

MAX_NEW_BYTES: Final = 256 * 2**20
"""Of a row group: its new columns are in memory at once."""


def may_splice(task: ScanTask, spec_id: int, options: WriteOptions) -> bool:
    """Whether a data file can be spliced, as far as its manifest entry says.

    Args:
        task: The file.
        spec_id: The spec of new files.
        options: The table's properties. Small files are rewritten: several of them become one then.
    """
    return (
        task.file_format.lower() == "parquet"
        and task.spec_id == spec_id
        and not task.equality_deletes
        and task.file_size_in_bytes >= options.splice_min_file_size
    )


class Splicer:
    """Splices data files.

    Args:
        files: The data files.
        job: What is the same for all of them.
        deletes: Whether the statement may delete rows.

    Attributes:
        data_files: The new files. Their metrics are as good as their footers.
        spliced_files: What of them is copied.
    """

    def __init__(self, files: TargetFiles, job: SpliceJob, *, deletes: bool) -> None:
        self._files = files
        self._job = job
        self._deletes = deletes
        self._written = written_footer(job.layout, job.context.options)
        self.data_files: list[ContentFile] = []
        self.spliced_files: list[SplicedDataFile] = []

    def splice(self, task: ScanTask, changes: ChangeCursor) -> Spliced | None:
        """Splices a data file.

        Args:
            task: The file.
            changes: Its changes.

        Returns:
            What became of its rows; None where the file cannot be spliced, or would have nothing copied: then no
            change was taken.

        Raises:
            DataError: a new value breaks a rule.
            ExecutionError: the changes do not fit the file.
            CorruptFileError: the file breaks its format.
        """
        job = self._job
        if not may_splice(task, job.context.default_spec_id, job.context.options):
            return None
        with ExitStack() as stack:
            old = stack.enter_context(opened(task, job.context.io_properties))
            if old is None:
                return None
            columns = self._columns(task, old.footer)
            if not columns.copies(columns.untouched) or is_too_large(old.footer, columns):
                return None
            choices = [self._choice(part) for part in (columns.untouched, columns.updated, columns.rewritten)]
            readers = stack.enter_context(self._files.pieces(task.file_ordinal, choices))
            splice = FileSplice(job, old, columns, readers, changes, max_new_bytes=MAX_NEW_BYTES)
            if not splice.is_worth_it():
                return None
            indexes = read_offset_indexes(old, columns.columns)
            if indexes is None:
                return None
            done = splice.run(indexes)
        if done.data_file is not None and done.copied is not None:
            self.data_files.append(done.data_file)
            self.spliced_files.append(done.copied)
        return done

    def new_bytes_ratio(self, task: ScanTask) -> float | None:
        """The share of a data file's bytes that would be new if rows of it were updated.

        Args:
            task: The file.

        Returns:
            The share; None where the file cannot be spliced.

        Raises:
            CorruptFileError: the file is not as long as it should be.
            ExecutionError: the storage failed.
        """
        job = self._job
        if not may_splice(task, job.context.default_spec_id, job.context.options):
            return None
        with opened(task, job.context.io_properties) as old:
            if old is None:
                return None
            columns = self._columns(task, old.footer)
            if not columns.copies(columns.updated) or is_too_large(old.footer, columns):
                return None
            return new_bytes_ratio(old.footer, columns.updated)

    def _columns(self, task: ScanTask, footer: Footer) -> SpliceColumns:
        """What of a file is copied."""
        return splice_columns(
            footer,
            self._job.layout,
            self._job.delta,
            self._written,
            lineage=len(self._job.lineage),
            loses_rows=self._deletes or task.has_deletes,
        )

    def _choice(self, layout: FileLayout) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """What is read for new columns."""
        ids = tuple(column.field_id for column in layout.columns)
        return ids[: len(ids) - len(self._job.lineage)], self._job.lineage


def is_too_large(footer: Footer, columns: SpliceColumns) -> bool:
    """Whether the new columns of a row group do not fit in memory, and its rows are to stay together."""
    return not columns.loses_rows and any(
        new_bytes(footer, group, columns.updated) > MAX_NEW_BYTES for group in footer.row_groups
    )
