"""Starting Spark: what is checked first, and with which settings."""

import atexit
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from dml.errors import SetupError
from dml.spark import launch
from dml.spark.launch import (
    GIB,
    LOG_SETTINGS,
    NOISE,
    check_java,
    check_python,
    default_settings,
    driver_memory,
    jvm_messages,
    may_keep_tables,
    spark_session,
    temporary_warehouse,
)


@pytest.fixture
def java_home(tmp_path):
    """Makes a folder whose `bin/java` prints a text and exits with a code."""

    def make(text, code=0):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
        program.chmod(0o755)
        return {"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    return make


def one_line(error):
    return "\n" not in str(error.value) and "openjdk" in str(error.value)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_a_java_that_is_new_enough_passes(java_home, text, major):
    assert check_java(java_home(text)) == major


@pytest.mark.parametrize(
    ("text", "shown"), [('java version "1.8.0_392"', "Java 8"), ('openjdk version "11.0.2"', "Java 11")]
)
def test_too_old_a_java_is_named_and_the_remedy_told(java_home, text, shown):
    with pytest.raises(SetupError, match=f"{shown} is too old") as caught:
        check_java(java_home(text))
    assert one_line(caught)


def test_a_java_that_is_slow_to_answer_is_left_to_spark(java_home, monkeypatch):
    monkeypatch.setattr("dml.limits.JAVA_VERSION_SECONDS", 0.2)
    home = java_home('openjdk version "17.0.15" 2025-04-15')
    program = Path(home["JAVA_HOME"]) / "bin" / "java"
    program.write_text("#!/bin/sh\nexec sleep 5\n")
    assert check_java(home) == 17


def test_a_java_that_does_not_run_is_told(java_home):
    with pytest.raises(SetupError, match="does not run") as caught:
        check_java(java_home('openjdk version "17"', code=1))
    assert one_line(caught)


def test_a_java_home_without_java_is_told_though_path_has_one(tmp_path):
    with pytest.raises(SetupError, match="there is no Java in it") as caught:
        check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert one_line(caught)


def test_no_java_at_all_is_told(tmp_path):
    with pytest.raises(SetupError, match="none was found") as caught:
        check_java({"PATH": str(tmp_path)})
    assert one_line(caught)


def test_the_java_of_this_machine_is_found():
    assert check_java(os.environ) >= 17


def test_too_old_a_python_is_told():
    check_python(sys.version_info[:2])
    with pytest.raises(SetupError, match=r"Python 3\.10 is too old"):
        check_python((3, 10))


def test_the_drivers_memory_follows_the_machines():
    assert driver_memory(1 * GIB) == 1024
    assert driver_memory(10 * GIB) == 4096
    assert driver_memory(1024 * GIB) == 16 * 1024


def test_settings_leave_to_the_user_what_is_theirs():
    settings = default_settings({})
    assert settings["spark.master"] == "local[*]"
    assert "spark.sql.session.timeZone" not in settings
    assert settings["spark.driver.memory"].endswith("m")
    assert default_settings({"MASTER": "local[1]"})["spark.master"] == "local[1]"
    assert "spark.driver.memory" not in default_settings({"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"})


OF_THIS_MACHINE = {
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.sql.shuffle.partitions",
    "spark.ui.enabled",
}


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*, 3]"])
def test_with_a_local_master_the_settings_fit_this_machine(master):
    settings = default_settings({"MASTER": "yarn"}, {"spark.master": master})
    assert settings["spark.master"] == master
    assert settings.keys() >= OF_THIS_MACHINE


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"])
def test_on_a_cluster_nothing_is_taken_from_this_machine(master):
    for settings in (default_settings({"MASTER": master}), default_settings({}, {"spark.master": master})):
        assert settings["spark.master"] == master
        assert not settings.keys() & OF_THIS_MACHINE
        assert settings["spark.python.daemon.module"] == "dml.spark.worker_daemon"


def test_the_settings_of_the_log_are_installed():
    assert Path(LOG_SETTINGS).is_file()


def test_data_frames_show_their_rows_at_a_prompt_only(monkeypatch):
    """In a program the repr of a DataFrame, which a log may print, runs no query; the user's setting counts first."""
    started: list[dict[str, str]] = []
    monkeypatch.setattr(launch, "active_session", lambda: None)
    monkeypatch.setattr(launch, "check_java", lambda _: 17)
    monkeypatch.setattr(launch, "start_session", lambda settings, *_: started.append(settings))
    monkeypatch.delattr(sys, "ps1", raising=False)
    spark_session()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    spark_session()
    spark_session(settings={"spark.sql.repl.eagerEval.enabled": "false"})
    assert [settings.get("spark.sql.repl.eagerEval.enabled") for settings in started] == [None, "true", "false"]


@pytest.mark.spark
def test_the_session_that_is_there_is_taken(spark):
    assert spark_session() is spark
    assert spark_session(spark) is spark
    assert (
        spark_session(settings={"spark.sql.shuffle.partitions": "99"}).conf.get("spark.sql.shuffle.partitions") == "3"
    )


@pytest.mark.spark
def test_workers_run_this_python_and_find_the_package(spark):
    def where(batches):
        import dml.errors  # noqa: PLC0415

        for batch in batches:
            yield batch.from_pydict({"python": [sys.executable], "module": [dml.errors.__name__]})

    row = spark.range(1).mapInArrow(where, "python STRING, module STRING").first()
    assert row.python == sys.executable
    assert row.module == "dml.errors"


def test_messages_of_the_jvm_reach_standard_error_without_javas_warning(capfd):
    with jvm_messages() as stderr:
        os.write(stderr, NOISE)
        os.write(stderr, b"21:00:00 ERROR one\n" + NOISE + b"[Stage 0:>")
    deadline = time.monotonic() + 10
    shown = ""
    while not shown.endswith(">") and time.monotonic() < deadline:
        time.sleep(0.01)
        shown += capfd.readouterr().err
    assert shown == "21:00:00 ERROR one\n[Stage 0:>"


def test_all_messages_of_a_jvm_that_does_not_start_come_before_the_error(capfd):
    def start():
        with jvm_messages() as stderr:
            os.write(stderr, b"no memory\n")
            raise SetupError("Spark does not start")

    with pytest.raises(SetupError):
        start()
    assert capfd.readouterr().err == "no memory\n"


def test_an_invalid_setting_stops_the_session_and_shows_no_jvm_stack_trace(monkeypatch):
    """Spark validates settings only after its session has started."""
    stopped = []
    text = "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc' is invalid. SQLSTATE: 22022\n\nJVM stacktrace:\n\tat x.y"

    class Session:
        @property
        def conf(self):
            raise PySparkException(text)

        def stop(self):
            stopped.append(self)

    monkeypatch.setattr(launch, "extend", lambda _: SimpleNamespace(getOrCreate=Session))
    with pytest.raises(SetupError) as caught:
        launch.start_session({})
    assert caught.value.message == "Spark does not start: The value 'abc' is invalid"
    assert len(stopped) == 1


def test_the_folder_of_sparks_own_tables_is_kept_with_files_and_removed_without(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    registered = []
    monkeypatch.setattr(atexit, "register", lambda function, folder: registered.append((function, folder)))
    for _ in range(2):
        assert temporary_warehouse().startswith(f"{tmp_path.as_uri()}/rowdelta-spark-")
    (first, folder), (second, other) = registered
    (folder / "table").mkdir()
    first(folder)
    second(other)
    assert (folder.exists(), other.exists()) == (True, False)


@pytest.mark.parametrize(
    ("environment", "chosen", "expected"),
    [
        ({"PATH": "/bin"}, {"spark.sql.catalogImplementation": "in-memory"}, False),
        ({}, {"spark.sql.catalogImplementation": "hive"}, True),
        ({"SPARK_HOME": "/opt/spark"}, {}, True),
        ({"SPARK_CONF_DIR": "/etc/spark"}, {}, True),
    ],
)
def test_where_sparks_own_catalog_may_keep_tables_their_folder_is_sparks(environment, chosen, expected):
    assert may_keep_tables(environment, chosen) is expected
