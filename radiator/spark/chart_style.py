"""Render charts as PNG: the colours, the title, and the line below it that says how to read the chart.

Every chart has a light and a dark version, of which the browser chooses one. The palettes can be distinguished by
colour-blind people.

Uses matplotlib without its global state (no pyplot), so any thread may draw.
"""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from radiator.spark.labels import shortened

# Letters that no installed font has are drawn as boxes; a warning for each letter on stderr does not help.
warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font", category=UserWarning)

DPI = 144
WIDTH_INCHES = 9.6  # of a chart
TITLE_LETTERS, NOTE_LETTERS = 74, 142  # letters that fit into the width
FONTS = (  # matplotlib brings the first; the others have letters that it lacks, and those that are installed are used
    "DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "IPAGothic",
    "Hiragino Sans", "PingFang SC", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "Unifont",
)  # fmt: skip


@cache
def _fonts() -> list[str]:
    """Return those of ``FONTS`` that are installed."""
    return [name for name in FONTS if name in fontManager.get_font_names()]


@dataclass(frozen=True)
class Theme:
    """Colours of a chart, as hexadecimal RGB.

    Attributes:
        name: ``light`` or ``dark``.
        paper: The background.
        ink: Text.
        quiet: Secondary text.
        grid: Grid lines.
        colours: The palette of series; the last one is for "other".
    """

    name: str
    paper: str
    ink: str
    quiet: str
    grid: str
    colours: tuple[str, ...]

    def colour(self, i: int) -> str:
        """Return a colour of the palette.

        Args:
            i: The number of the series; the palette repeats.
        """
        return self.colours[i % len(self.colours)]


LIGHT = Theme(
    "light", "#ffffff", "#1d2733", "#66717f", "#e6e9ee",
    ("#2f6fde", "#ed6d41", "#04673b", "#a367b8", "#e6a00b", "#2ebd91", "#df0754", "#7a8594"),
)  # fmt: skip
DARK = Theme(
    "dark", "#161b22", "#e6eaf0", "#96a1b0", "#2b333d",
    ("#6ea6ff", "#ffa168", "#07ca98", "#d3d7fa", "#f2c94c", "#4bffbe", "#f86a70", "#9aa5b3"),
)  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A chart. It is drawn at the first call of ``png`` or ``save``.

    Attributes:
        name: The file name, without .png.
        title: The title.
        note: How to read the chart.
        draw: Draws the chart into a figure.
        height: The height in inches.
        cut: The full names that are shortened in the chart.
    """

    name: str
    title: str
    note: str
    draw: Callable[[Figure, Theme], None]
    height: float
    cut: tuple[str, ...] = ()
    _drawn: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)  # by theme

    def png(self, theme: Theme = LIGHT) -> bytes:
        """Return the chart as PNG. It is drawn once per theme.

        Args:
            theme: The colours.
        """
        if theme.name not in self._drawn:
            self._drawn[theme.name] = self._draw(theme)
        return self._drawn[theme.name]

    def _draw(self, theme: Theme) -> bytes:
        style = {
            "font.family": _fonts(),
            "font.size": 10, "text.color": theme.ink, "axes.labelcolor": theme.quiet, "axes.edgecolor": theme.grid,
            "xtick.color": theme.quiet, "ytick.color": theme.ink, "axes.facecolor": theme.paper,
            "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "xtick.major.size": 0,
            "ytick.major.size": 0, "grid.color": theme.grid, "axes.axisbelow": True, "legend.frameon": False,
            "timezone": "UTC", "text.parse_math": False,
        }  # fmt: skip
        with rc_context(style):
            layout = ConstrainedLayoutEngine(rect=(0.006, 0.01, 0.984, 1 - 0.72 / self.height))  # room for the title
            figure = Figure(figsize=(WIDTH_INCHES, self.height), dpi=DPI, facecolor=theme.paper, layout=layout)
            FigureCanvasAgg(figure)
            top = 1 - 0.16 / self.height
            title = figure.text(0.014, top, "", fontsize=14, fontweight="bold", color=theme.ink, va="top")
            note = figure.text(0.014, top - 0.29 / self.height, "", fontsize=9.5, color=theme.quiet, va="top")
            _fit(figure, title, self.title, TITLE_LETTERS)
            _fit(figure, note, self.note, NOTE_LETTERS)
            self.draw(figure, theme)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", facecolor=theme.paper, metadata={"Software": "radiator"})
        return buffer.getvalue()

    def uri(self, theme: Theme) -> str:
        """Return the chart as a data URI, for a page.

        Args:
            theme: The colours.
        """
        return f"data:image/png;base64,{base64.b64encode(self.png(theme)).decode()}"

    @property
    def ratio(self) -> str:
        """The width and the height, as the CSS property ``aspect-ratio`` has them."""
        return f"{WIDTH_INCHES:g} / {self.height:g}"

    def save(self, folder: str | os.PathLike[str], theme: Theme = LIGHT) -> Path:
        """Write the chart as a PNG file and return its path.

        Args:
            folder: The directory; it is created if necessary.
            theme: The colours.

        Raises:
            OSError: The file cannot be written.
        """
        target = Path(folder, f"{self.name}.png")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.png(theme))
        return target


def _fit(figure: Figure, line: Text, text: str, letters: int) -> None:
    """Set a text of about ``letters`` letters: fewer if they are too wide for the figure."""
    line.set_text(shortened(text, letters))
    while line.get_window_extent().x1 > figure.bbox.x1 and letters > 1:
        letters -= 1
        line.set_text(shortened(text, letters))
