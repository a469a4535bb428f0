"""Which attempt of which task this is. Worker.

Input: Spark's task context, where there is one. Output: `TaskIdentity`.
"""

import sys
from dataclasses import dataclass

__all__ = ["TaskIdentity", "current_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One attempt of one task.

    Attributes:
        partition_id: The Spark partition.
        task_attempt_id: Unique among all attempts of all tasks of the application.
        attempt_number: How often the task was tried before.
    """

    partition_id: int = 0
    task_attempt_id: int = 0
    attempt_number: int = 0


def current_task() -> TaskIdentity:
    """The attempt that runs this code; outside Spark the first attempt of task 0."""
    # Writers must not load PySpark: they run without it in tests and other engines. In a Spark worker the worker's own
    # main loop has loaded it before any of our code runs, so it is found here without an import.
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    if context is None:
        return TaskIdentity()
    return TaskIdentity(
        partition_id=context.partitionId(),
        task_attempt_id=context.taskAttemptId(),
        attempt_number=context.attemptNumber(),
    )
