"""The health of a table, from its metadata: figures, and advice on maintenance. Driver.

`measure` reads each manifest of a snapshot once, and no data file. `overlap` sweeps over the bounds of files. The
advice is an argument: the needed steps of the plan of `maintain`. The result is a `TableHealth` (`report`), which
consists of `figures`. Its `parts` (`view`) are laid out by `text` for a terminal, and by `page` as HTML.
"""

from dml.table_health.figures import Advice, Certainty
from dml.table_health.measure import measure_health
from dml.table_health.report import TableHealth

__all__ = ["Advice", "Certainty", "TableHealth", "measure_health"]
