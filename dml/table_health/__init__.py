"""The health of a table, from its metadata: figures, and advice on maintenance. Driver.

`measure` reads the manifests of a snapshot, once, and no data file. `overlap` sweeps over the bounds of files. `advice`
asks the planners of `dml.maintenance` what their procedures would do. The result is a `TableHealth` (`report`), made of
the `figures`. It describes itself as parts (`view`), which `text` lays out for a terminal and `page` as HTML.
"""

from dml.table_health.figures import Advice, Certainty
from dml.table_health.measure import measure_health
from dml.table_health.report import TableHealth

__all__ = ["Advice", "Certainty", "TableHealth", "measure_health"]
