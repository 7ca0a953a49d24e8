"""Two panels of curves over powers of ten, as SVG."""

import math

import curves

WIDTH, HEIGHT = 300, 200


def svg(panels, names):
    """`panels`: (title, label of x, curves, value of a dashed line or None); a curve is [(x, y)] and has a name."""
    drawn = [_panel(*panel) for panel in panels]
    return curves.page(drawn, names, len(panels), WIDTH + 2 * curves.MARGIN, HEIGHT + curves.MARGIN)


def _panel(title, label, series, line):
    across = _powers([x for curve in series for x, _ in curve])
    up = _powers([y for curve in series for _, y in curve] + ([line] if line else []))

    def place(x, y):
        right = (math.log10(x) - across[0]) / (across[-1] - across[0])
        above = (math.log10(y) - up[0]) / (up[-1] - up[0])
        return WIDTH * right, HEIGHT * (1 - above)

    out = ['<text y="-6">%s</text><rect width="%d" height="%d" fill="none" stroke="#999"/>' % (title, WIDTH, HEIGHT)]
    for power in across:
        x, _ = place(10.0**power, 10.0 ** up[0])
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x, HEIGHT + 12, _number(power)))
    for power in up:
        _, y = place(10.0 ** across[0], 10.0**power)
        out.append('<path d="M0 %.1f H%d" stroke="#ddd"/>' % (y, WIDTH))
        out.append('<text x="-3" y="%.1f" text-anchor="end">%s</text>' % (y + 3, _number(power)))
    out.append('<text x="%d" y="%d" text-anchor="middle">%s</text>' % (WIDTH // 2, HEIGHT + 26, label))
    if line:
        _, y = place(10.0 ** across[0], line)
        out.append('<path d="M0 %.1f H%d" stroke="#333" stroke-dasharray="3 3"/>' % (y, WIDTH))
    for number, curve in enumerate(series):
        points = " ".join("%.1f,%.1f" % place(*point) for point in curve)
        color = curves.COLORS[number % len(curves.COLORS)]
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>' % (points, color))
    return "".join(out)


def _powers(values):
    """The powers of ten from below the smallest value to above the largest."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return list(range(low, max(high, low + 1) + 1))


def _number(power):
    return str(10**power) if 0 <= power < 5 else '10<tspan dy="-4" font-size="7">%d</tspan>' % power
