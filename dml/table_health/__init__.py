"""The health of a table, from its metadata: figures, and advice on maintenance. Driver.

`measure` reads the manifests of a snapshot, once, and no data file. `overlap` sweeps over the bounds of files. Advice
is an argument: the steps that the plan of `maintain` needs. The result is a `TableHealth` (`report`), made of the
`figures`. It describes itself as parts (`view`), which `text` lays out for a terminal and `page` as HTML.
"""

from dml.table_health.figures import Advice, Certainty
from dml.table_health.measure import measure_health
from dml.table_health.report import TableHealth

__all__ = ["Advice", "Certainty", "TableHealth", "measure_health"]
