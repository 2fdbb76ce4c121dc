"""Settings of the documentation site: ``make docs`` builds it into build/docs, without network access."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import jtgpu  # noqa: E402

project = "jtgpu"
author = "jtgpu authors"
copyright = "2026, jtgpu authors"
version = release = jtgpu.__version__

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_copybutton",
    "myst_nb",
    "extensions.links",
    "extensions.public_names",
    "extensions.object_pages",
    "extensions.command_pages",
    "extensions.http_pages",
    "extensions.pictures",
]
templates_path = ["templates"]  # of numpydoc: examples before parameters
exclude_patterns = ["extensions", "examples", "templates", "notes/README.rst"]
smartquotes = False  # "--evidence" stays two hyphens
default_role = "optional"  # extensions/links.py: a link if the name is documented, else code
highlight_language = "none"
nitpicky = True
# Inventories of other projects are not fetched, so their types have no target. Names of jtgpu must have one.
nitpick_ignore_regex = [
    ("py:.*", r"(?!jtgpu(\.|$)).*"),
    # types in signatures that users neither make nor get: type variables, and what passes from layer to layer
    ("py:class", r"jtgpu\..*\.[A-Z]"),
    ("py:class", r"jtgpu\.(backends\.(answers|base|table)|cases\.(files|options|query|solver))\..*"),
    ("py:class", r"jtgpu\.inference\.(evidence|evidence_table|interventions|tables\.\w+)\..*"),
    ("py:class", r"jtgpu\.learn\.dags\.(scores\.(coded\.CodedTable|rules\.\w+)|posterior\.records\.\w+)"),
    ("py:class", r"jtgpu\.(decisions\.\w+|dynamic\.\w+|inference\.sets|mixed\.\w+)\.\w+"),
    ("py:class", r"jtgpu\.(backends\.wrappers\.cutset|model\.(directed|states))\.\w+"),
    ("py:class", r"jtgpu\.model\.discrete\.Labels"),
    ("py:class", r"jtgpu\.(model\.cpt\.Axis|screen\.table\.Screened)"),
    ("py:class", r"jtgpu\.inference\.results\.case_states\.RankedExplanations"),
]

autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"jtgpu {release}"
html_static_path = ["pictures", "static"]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
FONTS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Helvetica, Arial, sans-serif"
html_theme_options = {
    "light_logo": "logo.svg",
    "dark_logo": "logo-dark.svg",
    "sidebar_hide_name": True,
    "light_css_variables": {
        "font-stack": FONTS,
        "font-stack--monospace": "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
        "color-brand-primary": "#0a5cc2",
        "color-brand-content": "#0a5cc2",
        "color-background-secondary": "#f6f8fa",
        "color-sidebar-link-text": "#3d4650",
        "color-sidebar-link-text--top-level": "#3d4650",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb0ff",
        "color-brand-content": "#6cb0ff",
        "color-sidebar-link-text": "#b7c0ca",
        "color-sidebar-link-text--top-level": "#b7c0ca",
    },
}
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
linkcheck_ignore = [r"https?://.*"]  # links within the site are checked; there is no network
