"""All retry policies. Worker-safe.

Input: `commit.retry.*` and `commit.status-check.*` of the table. Output: tenacity's policies, each used once. Waits
double from the minimum to the maximum.

- `commit_retries`: a commit that was rejected because another commit landed first (semantics R2).
- `status_checks`: searching for a commit whose response was lost (semantics R3).
- `storage_retries`: deleting a file that is no longer needed.
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
    """Return a policy that retries a function after a lost race.

    Args:
        options: The number of retries, waits and total time.
        lost_race: The error that means a lost race; other errors are not retried.

    Returns:
        The policy, which raises the last error unchanged. Each wait gets a random share of up to 10 %, so that two
        writers do not retry at the same moment.
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
    """Return a policy that retries a function until it returns a value, and finally returns None."""
    return Retrying(
        retry=retry_if_result(lambda found: found is None),
        stop=stop_after_attempt(options.status_check_retries + 1)
        | stop_after_delay(options.status_check_timeout_ms / 1000),
        wait=doubling_wait(options.status_check_min_wait_ms, options.status_check_max_wait_ms),
        retry_error_callback=lambda _: None,
    )


def storage_retries(deadline: float) -> Retrying:
    """Return a policy that retries a failing function, except for a missing file, and raises its last error unchanged.

    Args:
        deadline: A time of the monotonic clock; waits that would end after it are not started.
    """
    return Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, Exception) and not isinstance(error, FileNotFoundError)
        ),
        stop=lambda state: (
            state.attempt_number > limits.STORAGE_RETRIES or time.monotonic() + state.upcoming_sleep > deadline
        ),
        wait=doubling_wait(limits.STORAGE_MIN_WAIT_MS, limits.STORAGE_MAX_WAIT_MS),
        reraise=True,
    )


def doubling_wait(min_wait_ms: int, max_wait_ms: int) -> Callable[[RetryCallState], float]:
    return lambda state: backoff_seconds(min_wait_ms, max_wait_ms, state.attempt_number)


def backoff_seconds(min_wait_ms: int, max_wait_ms: int, failed_attempts: int) -> float:
    """Return the seconds to wait after a number of failed attempts, without jitter."""
    # A float, and a limited exponent, so that many retries do not produce a huge number.
    doubled = min_wait_ms * 2.0 ** min(failed_attempts - 1, 60)
    return min(doubled, max_wait_ms) / 1000
