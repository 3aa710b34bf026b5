"""Lays out the pages of the site in a folder: the project's Markdown pages and notebooks under their own paths.

So a link that works in the repository works in the site. The first page is the README, with the contents added.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "benchmarks/README.md")
FOLDERS = ("docs", "notebooks", "examples")

CONTENTS = """
```{toctree}
:hidden:
:caption: Use

docs/usage
docs/panel
docs/verbs
docs/stores
docs/files-and-paths
docs/mount
docs/training
docs/service
docs/packed
docs/convert
docs/archives
docs/files
docs/errors
docs/api
```

```{toctree}
:hidden:
:caption: Notebooks
:glob:

notebooks/*
examples/two-trainers/first
examples/two-trainers/second
```

```{toctree}
:hidden:
:caption: Trust

docs/guarantees
docs/security
SECURITY
docs/reliability
docs/conformance
docs/performance
docs/scale
docs/cluster
benchmarks/README
```

```{toctree}
:hidden:
:caption: Change

CONTRIBUTING
CHANGELOG
docs/design/index
```
"""

DESIGN = """# Decisions

Why things are as they are, by date.

```{toctree}
:glob:

20*
```
"""


def lay_out(target: Path) -> None:
    """Copy the pages below `target`, which must not exist."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for page in PAGES:
        (target / page).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / page, target / page)
    readme = target / "README.md"
    (target / "index.md").write_text(readme.read_text() + CONTENTS)
    readme.unlink()
    (target / "docs/design/index.md").write_text(DESIGN)


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
