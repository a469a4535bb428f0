"""Tests of reading a master URL and its settings."""

import pytest

from dml.spark.master import is_local_master, max_task_failures, parallel_tasks


def settings(**chosen):
    """Return a reader of settings, whose names are given without `spark.` and with `_` for a dot."""
    known = {f"spark.{key.replace('_', '.')}": value for key, value in chosen.items()}
    return known.get


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "local[*, 3]", " local[ 2 ]"])
def test_tasks_run_in_the_drivers_jvm_with_a_local_master(master):
    assert is_local_master(master)


@pytest.mark.parametrize(
    "master", ["local-cluster[2,1,1024]", "spark://a:1,b:2", "yarn", "k8s://https://h:1", "localhost", "", None]
)
def test_all_others_have_machines_of_their_own(master):
    assert not is_local_master(master)


@pytest.mark.parametrize(
    ("chosen", "failures"),
    [
        ({"master": "local[2]", "task_maxFailures": "7"}, 1),
        ({"master": "local[2,3]"}, 3),
        ({"master": "local-cluster[2,1,640]"}, 4),
        ({"master": "yarn", "task_maxFailures": "7"}, 7),
        ({}, 4),
    ],
)
def test_how_often_a_task_is_tried(chosen, failures):
    assert max_task_failures(settings(**chosen)) == failures


@pytest.mark.parametrize(
    ("chosen", "live", "tasks"),
    [
        ({"master": "local[8]"}, 8, 8),
        ({"master": "local[1]"}, 1, 1),
        ({"master": "local[8]", "default_parallelism": "3"}, 8, 3),
        ({"master": "yarn", "default_parallelism": "300"}, 2, 300),
        ({"master": "yarn", "executor_instances": "10", "executor_cores": "4"}, 2, 40),
        ({"master": "yarn", "executor_instances": "10", "executor_cores": "4", "task_cpus": "2"}, 2, 20),
        ({"master": "spark://h:7077", "cores_max": "4"}, 64, 64),
        ({"master": "spark://h:7077"}, 0, 2),
    ],
)
def test_work_is_divided_by_the_executors_that_are_configured_or_live(chosen, live, tasks):
    assert parallel_tasks(settings(**chosen), live) == tasks


@pytest.mark.parametrize(
    ("chosen", "live", "tasks"),
    [
        ({}, 2, 200),
        ({"sql_shuffle_partitions": "64"}, 2, 64),
        ({"dynamicAllocation_maxExecutors": "5", "executor_cores": "4"}, 2, 20),
        ({"dynamicAllocation_maxExecutors": "infinity", "executor_cores": "4"}, 2, 200),
        ({"dynamicAllocation_maxExecutors": "1000", "executor_cores": "4"}, 2, 200),
        ({"dynamicAllocation_initialExecutors": "100", "executor_cores": "4"}, 2, 400),
        ({}, 500, 500),
    ],
)
def test_dynamic_allocation_grows_with_the_work_and_not_the_work_with_the_executors_there_are(chosen, live, tasks):
    allocation = {"master": "yarn", "dynamicAllocation_enabled": "true"}
    assert parallel_tasks(settings(**allocation, **chosen), live) == tasks
