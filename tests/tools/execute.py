"""Execute a notebook with the kernel of this Python. A program: its input and its output are its arguments.

python tests/tools/execute.py docs/tour.ipynb docs/tour.ipynb    writes the outputs anew
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELL_SECONDS = 300

source, target = map(Path, sys.argv[1:])
notebook = nbformat.read(source, as_version=4)
with tempfile.TemporaryDirectory() as folder:
    NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
for cell in notebook.cells:
    cell.metadata.pop("execution", None)  # when it ran
    if cell.cell_type == "code":  # what Java says when it starts, and progress
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
notebook.metadata.pop("language_info", None)
nbformat.write(notebook, target)
