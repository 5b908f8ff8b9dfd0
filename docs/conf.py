"""How Sphinx builds the site; `docs/_ext` holds the parts that are this project's own."""

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "bayesticket"
author = "The bayesticket maintainers"
copyright = author
release = metadata.version("bayesticket")
repository = os.environ.get("SITE_REPOSITORY", "")
"""The public repository as `owner/name`, where it is known; links into it and Colab need it."""

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_gallery.gen_gallery",
    "site_code",
    "site_figures",
    "site_gallery",
    "site_glossary",
    "site_reference",
    "site_results",
]
exclude_patterns = ["_*", "gallery/*.ipynb", "gallery/*.html"]
suppress_warnings = ["config.cache"]  # sphinx-gallery's options hold objects that no cache can hold
nitpicky = True
# Types of other libraries, and those that a room has for itself, may be named without a link.
nitpick_ignore_regex = [("py:.*", r"(?!bayesticket\.).*"), ("py:class", r"bayesticket\.\w+\.\w+\.\w+")]
linkcheck_anchors = False

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("bayesticket",),
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "reset_argv": "site_gallery.at_full_scale",
    "reset_modules": ("site_gallery.prepare_example",),
    "image_scrapers": (),
    "plot_gallery": False,  # `make gallery` runs examples, the site shows what they left
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "min_reported_time": float("inf"),
    "show_signature": False,
}
