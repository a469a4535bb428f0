"""A Java that starts Spark in half the time, for the many sessions of a run of the suite. A program.

Half of the seconds that a session takes to start go to finding, checking and linking the classes of two hundred JARs.
This starts one session, runs a statement of each kind, and keeps the classes that were loaded in an archive that other
JVMs map into their memory (Java's "application class-data sharing"). The JVMs are small ones: they compile quickly
rather than well, since most of their code runs a few times, and one thread collects garbage.

    python tests/class_archive.py FOLDER    FOLDER/java is a JAVA_HOME then

The exit code is 1 where this Java cannot do it; nothing is left then.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark import SparkContext

import dml
from dml.spark.launch import LOG_SETTINGS, spark_session

__all__ = ["JVM_OPTIONS", "main", "make_home"]

# With quick compilation alone Java gives 48 MB to compiled code: Spark fills them, and is compiled again and again.
# Until Spark's classes are loaded, each time that they reach the limit all garbage is collected: it starts at 21 MB.
JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"
EXIT_SECONDS: Final = 120
STATEMENTS: Final = (
    "CREATE NAMESPACE db",
    "CREATE TABLE db.t (id BIGINT, part INT, text STRING) PARTITIONED BY (part)",
    "INSERT INTO db.t VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')",
    """MERGE INTO db.t USING (VALUES (1, 'x'), (4, 'y')) AS s (id, text) ON t.id = s.id
       WHEN MATCHED THEN UPDATE SET text = s.text
       WHEN NOT MATCHED THEN INSERT (id, part, text) VALUES (s.id, 2, s.text)""",
    "UPDATE db.t SET text = upper(text) WHERE part IN (SELECT max(part) FROM db.t)",
    "ALTER TABLE db.t SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "DELETE FROM db.t WHERE id = 2",
)


def make_archive(archive: Path, warehouse: Path) -> None:
    """Run what loads the classes that tests need, in a session that writes them down when it ends.

    Args:
        archive: The file that is written; it is not there if Java could not.
        warehouse: An empty folder.
    """
    options = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} {JVM_OPTIONS} -Xlog:disable"
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{options} -XX:ArchiveClassesAtExit={archive}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(warehouse / "spark"),
    }
    spark = spark_session(settings=settings)
    lake = dml.connect(str(warehouse / "lake"), spark=spark)
    for statement in STATEMENTS:
        lake.sql(statement)
    rows = lake.sql("SELECT a.part, count(*) FROM db.t a JOIN db.t b ON a.id = b.id GROUP BY a.part ORDER BY 1")
    rows.union(lake.table("db.t").groupBy("part").count()).collect()
    spark.createDataFrame([(1, "a")], "id BIGINT, text STRING").where("id > 0").toPandas()
    end_of_java(spark.sparkContext)


def end_of_java(context: SparkContext) -> None:
    """End the session and wait until its JVM has ended: it writes the archive last."""
    process = context._gateway.proc
    context.stop()
    process.stdin.close()
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def java_home() -> Path:
    """Where the Java lives that Spark would start, as it says itself: on a Mac the one of PATH only starts another."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    asked = [program or "java", "-XshowSettings:properties", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    return Path(said.partition("java.home = ")[2].splitlines()[0].strip())


def make_home(home: Path, real: Path, archive: Path) -> None:
    """A folder that is the real JAVA_HOME but for the program `java`, which is given options.

    Args:
        home: The new folder.
        real: Java's own.
        archive: The classes.
    """
    (home / "bin").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    for program in (real / "bin").iterdir():
        (home / "bin" / program.name).symlink_to(program)
    java = home / "bin" / "java"
    java.unlink()
    # Other class paths than Spark's do not fit the archive: Java goes on without it, and would say so on its output.
    options = f"{JVM_OPTIONS} -Xshare:auto -Xlog:disable -XX:SharedArchiveFile='{archive}'"
    java.write_text(f"#!/bin/sh\nexec '{real / 'bin' / 'java'}' {options} \"$@\"\n", encoding="utf-8")
    java.chmod(0o755)


def main(folder: Path) -> int:
    """Make the archive, and the JAVA_HOME that uses it.

    Args:
        folder: Where `java` and `classes.jsa` are made.

    Returns:
        0 if they are there.
    """
    archive = folder / "classes.jsa"
    with tempfile.TemporaryDirectory() as warehouse:
        make_archive(archive, Path(warehouse))
    if not archive.exists():
        return 1
    make_home(folder / "incomplete", java_home(), archive)
    (folder / "incomplete").rename(folder / "java")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
