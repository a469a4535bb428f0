"""When a commit is tried again, and how long it waits. Driver.

Input: `commit.retry.*` of the table. Output: a tenacity policy. Rules: only a lost race is tried again; waits double
from the least to the greatest, with up to 10 % on top, so that two writers do not meet again.
"""

import random

from pyiceberg.exceptions import CommitFailedException
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay

from dml.options import CommitOptions

__all__ = ["retrying", "wait_seconds"]

JITTER = 0.1


def retrying(options: CommitOptions) -> Retrying:
    """The policy of a table.

    Args:
        options: Number of retries, waits and total time.

    Returns:
        Calls a function until it does not raise `CommitFailedException`; the last one is raised as it is.
    """

    def wait(state: RetryCallState) -> float:
        # Jitter needs no secrecy.
        return wait_seconds(options, state.attempt_number) * (1 + JITTER * random.random())  # noqa: S311

    return Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(options.num_retries + 1) | stop_after_delay(options.total_timeout_ms / 1000),
        wait=wait,
        reraise=True,
    )


def wait_seconds(options: CommitOptions, failed_attempts: int) -> float:
    """Seconds to wait after so many failures, without jitter."""
    # A float, so that a large number of retries cannot make a number that is too large to compare.
    doubled = options.min_wait_ms * 2.0 ** min(failed_attempts - 1, 60)
    return min(doubled, options.max_wait_ms) / 1000
