"""The settings of the documentation site: Sphinx with MyST (Markdown) and Furo. ``tox -e docs`` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

project = "Dovetail"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Dovetail"
html_copy_source = False
# Code blocks are commands and outputs for tests. In an output, … means the rest of a line, which breaks highlighting.
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
