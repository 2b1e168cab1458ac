"""Hooks of MkDocs: what the pages need that MkDocs does not do itself (``mkdocs.yml``, ``hooks``)."""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

HERE = Path(__file__).parent
DECISIONS = "Decisions"
TEST_COMMENT = re.compile(r"^<!-- test: .*-->\n", re.MULTILINE)  # for tests/test_docs_snippets.py, not for readers
FENCE_WORDS = re.compile(r"^(```+\w+) .*$", re.MULTILINE)  # a second word is for tests; MkDocs does not render it
SOURCE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:radiator|examples|tests)/[^)]*\)")


def on_config(config: Any) -> Any:
    """Add every page of ``docs/adr`` to the navigation under ``Decisions``."""
    pages = ["adr/README.md", *(f"adr/{path.name}" for path in sorted(HERE.glob("adr/[0-9]*.md")))]
    for section in config.nav:
        for entries in section.values():
            entries[:] = [{DECISIONS: pages} if entry == DECISIONS else entry for entry in entries]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove what is for tests only, and links to source files, which are not part of the site."""
    return SOURCE_LINK.sub(r"\1", FENCE_WORDS.sub(r"\1", TEST_COMMENT.sub("", markdown)))


def on_page_content(html: str, page: Any, **_: Any) -> None:
    """Fail if a block of code was not rendered as one."""
    if "```" in html:
        raise PluginError(f"{page.file.src_uri}: a fenced block is not rendered as a block")
