# Each target sets up what it needs: a virtual environment in .venv with the package and its tools.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test nightly check clean

demo: $(STAMP)
	@$(BIN)/python -m dml demo

# The suite in parts, several at a time; `make nightly` is what is too long for that.
test: $(STAMP)
	@$(BIN)/python -P tests/suite.py

nightly: $(STAMP)
	@$(BIN)/python -P tests/suite.py --nightly

check: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/python -P tests/suite.py

clean:
	rm -rf .venv build *.egg-info

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo 'RowDelta needs Python 3.11 or later: install it, or name one with "make PYTHON=python3.12"' >&2; exit 1; }
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	  major=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); [ "$${major:-0}" -ge 17 ] || \
	  { echo 'Spark needs Java 17 or later: install it (Debian: apt-get install default-jre-headless), or set JAVA_HOME' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
