"""A job for `spark-submit`: `job.py NAMESPACE`. It reads the catalog's properties from the file `catalog.json`."""

import json
import sys
from pathlib import Path

import dml

properties = json.loads(Path("catalog.json").read_text())
lake = dml.connect(catalog="lake", progress=False, **properties)
name = f"{sys.argv[1]}.submitted"
lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {sys.argv[1]}")
lake.sql(f"CREATE TABLE {name} (id BIGINT, s STRING) PARTITIONED BY (bucket(2, id))")
lake.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(0, 10000, 1, 4)")
lake.sql(f"UPDATE {name} SET s = 'b' WHERE id % 2 = 0")
merge = f"""MERGE INTO {name} t USING (SELECT id * 3 AS id FROM range(5000)) s ON t.id = s.id
    WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'c')"""
lake.sql(merge)


def where(batches):
    """Yield the Python and the path from which a worker imports the package."""
    import dml.write.delta_writer as found  # noqa: PLC0415

    for batch in batches:
        yield batch.from_pydict({"python": [sys.executable] * len(batch), "module": [found.__file__] * len(batch)})


places = lake.spark.range(0, 4, 1, 4).mapInArrow(where, "python STRING, module STRING").distinct().collect()
daemon = lake.spark.sparkContext.getConf().get("spark.python.daemon.module")
rows = lake.sql(f"SELECT s, count(*), sum(id) FROM {name} GROUP BY s ORDER BY s").collect()
print(json.dumps({"places": places, "daemon": daemon, "rows": rows, "ok": lake.verify(name).ok}))
lake.spark.stop()
