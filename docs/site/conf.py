"""How Sphinx builds the site of the documentation; `make docs` lays its pages out first (`layout.py`)."""

from __future__ import annotations

import os
from typing import Any

project = "nbdata"
author = "The nbdata developers"
html_title = "nbdata"
html_theme = "furo"
root_doc = "index"
exclude_patterns = ["**/.ipynb_checkpoints", "binder", "docs/site"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

# Headings can be linked to, as on GitHub.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Notebooks are run where the site is built for people, and shown without outputs where only the pages are checked.
nb_execution_mode = os.environ.get("NBDATA_DOCS_NOTEBOOKS", "force")
nb_execution_excludepatterns = ["examples/two-trainers/*"]  # they run side by side
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

# `name` in a docstring is code.
default_role = "code"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def _plain(*event: Any) -> None:
    """Help texts of verbs are plain text: a star in them is a star."""
    _app, _what, _name, documented, _options, lines = event
    if str(getattr(documented, "__module__", "")).startswith("nbdata.verbs."):
        lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _plain, priority=400)  # before napoleon
