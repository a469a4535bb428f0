"""The procedures of the namespace `system`, which CALL runs. Driver.

Input: a CALL. Output: the rows of the procedure. `declaration` defines what a procedure is, `binding` evaluates its
arguments and runs it, and each other module declares a group of procedures.
"""

from dml.engine.procedures.binding import PROCEDURES, run_call, table_of_call
from dml.engine.procedures.declaration import Parameter, Procedure
from dml.engine.procedures.statistics import analyze_table
from dml.engine.procedures.upkeep import remove_orphans, table_health, verify_table

__all__ = [
    "PROCEDURES",
    "Parameter",
    "Procedure",
    "analyze_table",
    "remove_orphans",
    "run_call",
    "table_health",
    "table_of_call",
    "verify_table",
]
