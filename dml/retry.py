"""What is tried again, how often, and how long to wait in between: every policy there is. Worker-safe.

Input: `commit.retry.*` and `commit.status-check.*` of the table. Output: tenacity's policies, each used once. Waits
double from the least to the greatest.

- `commit_retries`: a commit that lost the race for the catalog (semantics R2).
- `status_checks`: looking for a commit whose answer was lost (semantics R3).
- `storage_retries`: deleting a file that nothing needs.
"""

import random
import time
from collections.abc import Callable

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
)

from dml import limits
from dml.options import CommitOptions

__all__ = ["backoff_seconds", "commit_retries", "status_checks", "storage_retries"]


def commit_retries(options: CommitOptions, lost_race: type[Exception]) -> Retrying:
    """Calls a function until it does not lose the race.

    Args:
        options: Number of retries, waits and total time.
        lost_race: What the function raises then; anything else is final.

    Returns:
        The policy; the last error is raised as it is. Up to 10 % is added to each wait, so that two writers do not meet
        again.
    """

    def wait(state: RetryCallState) -> float:
        seconds = backoff_seconds(options.min_wait_ms, options.max_wait_ms, state.attempt_number)
        # Jitter needs no secrecy.
        return seconds * (1 + limits.RETRY_JITTER * random.random())  # noqa: S311

    return Retrying(
        retry=retry_if_exception_type(lost_race),
        stop=stop_after_attempt(options.num_retries + 1) | stop_after_delay(options.total_timeout_ms / 1000),
        wait=wait,
        reraise=True,
    )


def status_checks(options: CommitOptions) -> Retrying:
    """Calls a function until its result is not None; None if it stays that."""
    return Retrying(
        retry=retry_if_result(lambda found: found is None),
        stop=stop_after_attempt(options.status_check_retries + 1)
        | stop_after_delay(options.status_check_timeout_ms / 1000),
        wait=doubling(options.status_check_min_wait_ms, options.status_check_max_wait_ms),
        retry_error_callback=lambda _: None,
    )


def storage_retries(deadline: float) -> Retrying:
    """Calls a function until it does not fail; the last error is raised as it is.

    A file that is not there is final.

    Args:
        deadline: On the monotonic clock; a wait that would end after it is not begun.
    """
    return Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, Exception) and not isinstance(error, FileNotFoundError)
        ),
        stop=lambda state: (
            state.attempt_number > limits.STORAGE_RETRIES or time.monotonic() + state.upcoming_sleep > deadline
        ),
        wait=doubling(limits.STORAGE_MIN_WAIT_MS, limits.STORAGE_MAX_WAIT_MS),
        reraise=True,
    )


def doubling(min_wait_ms: int, max_wait_ms: int) -> Callable[[RetryCallState], float]:
    return lambda state: backoff_seconds(min_wait_ms, max_wait_ms, state.attempt_number)


def backoff_seconds(min_wait_ms: int, max_wait_ms: int, failed_attempts: int) -> float:
    """Seconds to wait after so many failures, without jitter."""
    # A float, so that a large number of retries cannot make a number that is too large to compare.
    doubled = min_wait_ms * 2.0 ** min(failed_attempts - 1, 60)
    return min(doubled, max_wait_ms) / 1000
