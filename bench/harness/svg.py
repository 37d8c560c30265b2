"""Bar charts as SVG, written by hand: readable on a light page and on a dark one, and by people who
cannot see colours, since every bar has its name and its figure beside it."""

from xml.sax.saxutils import escape

WIDTH, NAMES, FIGURES = 760, 210, 120
BAR, GAP, HEAD, FOOT = 20, 8, 50, 8

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .quiet { fill: #59636e; }
    .ours { fill: #0969da; }
    .peer { fill: #8c959f; }
    .floor { fill: #bc4c00; }
    .spread { stroke: #1f2328; stroke-width: 1.5; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .quiet { fill: #9198a1; }
      .ours { fill: #4493f8; }
      .peer { fill: #656c76; }
      .floor { fill: #db6d28; }
      .spread { stroke: #f0f6fc; }
    }
"""


class Bar:
    """One system's bar: how it is named, its median, its extremes, and what it is (ours, peer or
    floor)."""

    def __init__(self, name, value, least, most, kind, figure):
        self.name, self.value, self.least, self.most = name, value, least, most
        self.kind, self.figure = kind, figure


def scale(value, most):
    """The length of a bar, in the room between names and figures."""
    room = WIDTH - NAMES - FIGURES
    return 0.0 if most <= 0 else room * min(value, most) / most


def chart(title, subtitle, bars):
    """The text of a chart. Bars come in the order in which they are given."""
    height = HEAD + len(bars) * (BAR + GAP) + FOOT
    # The longest line may be an extreme, but one wild round must not make all bars dots.
    most = max((bar.value for bar in bars), default=0) * 1.15
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"  <style>{STYLE}  </style>",
        f'  <text class="title" x="8" y="18">{escape(title)}</text>',
        f'  <text class="quiet" x="8" y="36">{escape(subtitle)}</text>',
    ]
    for index, bar in enumerate(bars):
        top = HEAD + index * (BAR + GAP)
        length, middle = scale(bar.value, most), top + BAR / 2
        low, high = scale(bar.least, most), scale(bar.most, most)
        text = top + BAR - 5
        lines += [
            f'  <text x="{NAMES - 10}" y="{text}" text-anchor="end">{escape(bar.name)}</text>',
            f'  <rect class="{bar.kind}" x="{NAMES}" y="{top}" width="{max(1.0, length):.1f}"'
            f' height="{BAR}" rx="3"/>',
        ]
        if high - low >= 1:
            lines.append(
                f'  <line class="spread" x1="{NAMES + low:.1f}" x2="{NAMES + high:.1f}"'
                f' y1="{middle}" y2="{middle}"/>'
            )
        end = NAMES + max(length, high) + 8
        lines.append(f'  <text x="{end:.1f}" y="{text}">{escape(bar.figure)}</text>')
    return "\n".join([*lines, "</svg>", ""])
