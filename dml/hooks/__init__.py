"""What is done after a commit, and never fails it: tags, marks of done partitions, callbacks, metrics. Driver.

Input: what a statement, a DataFrame's write or a micro-batch came to; the properties of its table, and the session's
settings before them. `run` does it all, in this order, and turns what goes wrong into a warning: the snapshot is there.
"""

from dml.hooks.run_hooks import Callbacks, Finished, after_statement

__all__ = ["Callbacks", "Finished", "after_statement"]
