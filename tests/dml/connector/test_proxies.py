"""Java objects in Python: default methods, exceptions, equality, numbers, threads."""

import threading
import time

import pytest
from py4j.protocol import Py4JJavaError

from dml.spark.bridge.gateway import CALLERS
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import array, java_class, java_error, optional_long
from dml.spark.callbacks import take_callbacks

pytestmark = pytest.mark.spark


class Sizes(Proxy):
    interfaces = ("read.Statistics",)

    def __init__(self, rows=3):
        self.rows = rows

    def numRows(self):
        return optional_long(self.rows)

    def sizeInBytes(self):
        raise ValueError("no size today")


class Numbers(Proxy):
    interfaces = ("java.util.Comparator",)

    def compare(self, left, right):
        return (left > right) - (left < right)

    @property
    def identity(self):
        return ()


class Task(Proxy):
    interfaces = ("java.lang.Runnable",)

    def __init__(self):
        self.runs = 0

    def run(self):
        self.runs += 1


class Broken(Proxy):
    interfaces = ("java.util.concurrent.Callable",)

    def call(self):
        raise java_error("java.io.IOException", "as it is")


@pytest.fixture(autouse=True)
def callbacks(spark):
    take_callbacks()


def call(proxy, interface, name, *arguments):
    """Call a method as the JVM does: by reflection on the proxy."""
    classes = java_class("java.lang.Class")
    (method,) = [m for m in classes.forName(interface).getMethods() if m.getName() == name]
    return method.invoke(proxy, array("java.lang.Object", arguments))


def test_methods_that_python_does_not_define_run_as_in_java():
    """`reversed` of a Comparator and `columnStats` of Statistics have bodies."""
    assert Numbers().compare(1, 2) == -1
    assert call(Numbers(), "java.util.Comparator", "reversed").compare(1, 2) == 1
    assert call(Sizes(), "org.apache.spark.sql.connector.read.Statistics", "columnStats").isEmpty()


def test_exceptions_of_python_come_back_as_they_were():
    statistics = "org.apache.spark.sql.connector.read.Statistics"
    with pytest.raises(ValueError, match="no size today"):
        call(Sizes(), statistics, "sizeInBytes")


def test_java_exceptions_pass_as_they_are():
    """Checked ones too, where the method may throw them."""
    with pytest.raises(Py4JJavaError) as raised:
        call(Broken(), "java.util.concurrent.Callable", "call")
    assert "java.io.IOException: as it is" in str(raised.value.java_exception.getCause())


def test_equality_and_hashes_are_pythons():
    """Java may hold several proxies of one object, and of equal ones."""
    found = java_class("java.util.HashSet")()
    found.add(Numbers())
    found.add(Numbers())
    assert found.size() == 1
    sizes = Sizes()
    found.clear()
    found.add(sizes)
    found.add(sizes)
    found.add(Sizes())
    assert found.size() == 2


def test_large_numbers_arrive():
    assert call(Sizes(2**62), "org.apache.spark.sql.connector.read.Statistics", "numRows").getAsLong() == 2**62


def test_threads_of_the_jvm_that_have_ended_leave_nothing(spark):
    """A Connect server has one for each query, and py4j would keep a connection and a thread for each.

    How many may wait to be closed depends on how many of Spark's threads are alive.
    """
    task, before, threads = Task(), threading.active_count(), java_class("java.lang.Thread")
    waiting = CALLERS._limit + 40
    for _ in range(2 * waiting):
        thread = threads(task)
        thread.start()
        thread.join()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + waiting and time.monotonic() < deadline:
        time.sleep(0.1)
    assert task.runs == 2 * waiting
    assert threading.active_count() <= before + waiting
