"""The look of every figure: colours, symbols, the template, and the panels that several figures have."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY = OKABE_ITO
PALETTE = (*OKABE_ITO, "#9000F0", "#603000", "#C0A860", "#0018A8", "#900078", "#9060F0", "#906030")
"""The colours of arms, in this order: Okabe and Ito's, then seven that lie as far from these and from each other.

Any two are 16 or more apart in CIELAB, also as protanopes, deuteranopes and tritanopes see them.
"""
SYMBOLS = ("square-open", "diamond-open", "triangle-up-open", "cross-open", "triangle-down-open", "star-open")
"""The symbols that further arms have along their lines."""
INK, GRID = "#222222", "#E4E4E4"
TRAIN, TEST, UNSEEN = VERMILION, BLUE, PURPLE
SHADES = ((0.0, "#F4F8FB"), (0.5, "#7FB8D8"), (1.0, "#00476F"))
"""The colours of attention weights, from 0 to the largest."""
BLUES = ("#A8CFEE", BLUE, "#002845")
"""The colours between which `shades` interpolates."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_AXIS = {
    "gridcolor": GRID,
    "linecolor": "#888888",
    "showline": True,
    "ticks": "outside",
    "tickcolor": "#888888",
    "ticklen": 4,
    "zeroline": False,
    "automargin": True,
    "title": {"font": {"size": 14}},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 14, "color": INK},
        "title": {
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"l": 12, "t": 14},
            "font": {"size": 17},
            "subtitle": {"font": {"size": 13}},
        },
        "colorway": PALETTE,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 70, "r": 25, "t": 80, "b": 55},
        "hoverlabel": {"bgcolor": "white", "font": {"family": FONT, "size": 13}},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)
"""The plotly template of every figure."""


@dataclass(frozen=True)
class Panel:
    """One of several panels stacked above a common epoch axis."""

    title: str
    log: bool = False
    span: tuple[float, float] | None = None
    """The range of the vertical axis; fitted to the data by default."""
    percent: bool = False
    """Whether the values are shown in percent."""
    note: str = ""
    """What stands behind the title, in brackets and not in bold."""

    @property
    def heading(self) -> str:
        """The title and the note as plotly writes them."""
        return f"<b>{self.title}</b>" + (f" ({self.note})" if self.note else "")


ACCURACY = Panel("accuracy", span=(-0.03, 1.03), percent=True)
ELSEWHERE = Panel("accuracy on other tasks", span=(-0.03, 1.03), percent=True)
MASS = Panel("attention on the informative positions", span=(-0.03, 1.03))
KL = Panel("divergence of attention from the oracle, in nats", log=True)
LOSS = Panel("loss", log=True)
SIZES = Panel("norm of the MLP, gradient in the attention", log=True)


def shades(n: int) -> list[str]:
    """`n` colours of one hue from light to dark blue, for arms in an order; of ten, neighbours can be told apart.

    >>> shades(3), shades(1)
    (['#A8CFEE', '#0072B2', '#002845'], ['#0072B2'])
    """
    ends = [[int(colour[place : place + 2], 16) for colour in BLUES] for place in (1, 3, 5)]
    at = np.linspace(0, len(BLUES) - 1, n) if n > 1 else [1] * n
    channels = [np.interp(at, range(len(BLUES)), each).round().astype(int) for each in ends]
    return [f"#{red:02X}{green:02X}{blue:02X}" for red, green, blue in zip(*channels, strict=True)]


def transparent(colour: str, opacity: float) -> str:
    """A colour with an opacity from 0 to 1, as plotly writes it.

    >>> transparent("#0072B2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


@dataclass(frozen=True)
class Look:
    """The colour of an arm, and the symbol along its lines, if it has one."""

    colour: str
    symbol: str | None = None


def look(place: int) -> Look:
    """How the arm at a place, counted from 0, is drawn: 14 colours, and symbols from the eighth arm on.

    Colour and symbol together are the same only after 42 arms.

    >>> look(0), look(8)
    (Look(colour='#0072B2', symbol=None), Look(colour='#603000', symbol='diamond-open'))
    """
    further = place - len(OKABE_ITO)
    return Look(PALETTE[place % len(PALETTE)], SYMBOLS[further % len(SYMBOLS)] if further >= 0 else None)


def marked(symbol: str | None, colour: str) -> dict[str, object]:
    """The part of a plotly trace that says whether the line has symbols, about ten along its length."""
    if symbol is None:
        return {"mode": "lines"}
    marker = {"symbol": symbol, "color": colour, "size": 8, "maxdisplayed": 10}
    return {"mode": "lines+markers", "marker": marker}
