"""Draws loss over seconds as small multiples, straight to SVG: nothing to install."""

import math

WIDTH, HEIGHT, MARGIN = 190, 130, 48
COLORS = ("#c0392b", "#2471a3", "#1e8449", "#7d3c98")


def svg(panels, names, per_row):
    """`panels`: (title, target, [curve of each name]); a curve is [(seconds, loss)]. The loss axis is logarithmic."""
    return page([_panel(*panel) for panel in panels], names, per_row, WIDTH + MARGIN, HEIGHT + MARGIN + 16)


def page(drawings, names, per_row, across, down):
    """Drawings in rows, each in a cell of this size, below the names in their colors."""
    rows = (len(drawings) + per_row - 1) // per_row
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">'
        % (per_row * across + MARGIN, rows * down + MARGIN),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, name in enumerate(names):
        out.append('<text x="%d" y="14" fill="%s">%s</text>' % (MARGIN + 200 * i, COLORS[i % len(COLORS)], name))
    for i, drawing in enumerate(drawings):
        x, y = MARGIN + i % per_row * across, MARGIN + i // per_row * down
        out.append('<g transform="translate(%d %d)">%s</g>' % (x, y, drawing))
    return "\n".join(out + ["</svg>\n"])


def _panel(title, target, series):
    points = [p for curve in series for p in curve if _drawable(p[1])]
    longest = max([p[0] for p in points] or [1.0]) or 1.0
    losses = [math.log10(p[1]) for p in points] + [math.log10(target)]
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0

    def place(seconds, loss):
        return WIDTH * seconds / longest, HEIGHT * (high - math.log10(loss)) / span

    y = place(0, target)[1]
    out = [
        '<text y="-6">%s</text>' % title,
        '<rect width="%d" height="%d" fill="none" stroke="#999"/>' % (WIDTH, HEIGHT),
        '<line x1="0" x2="%d" y1="%.1f" y2="%.1f" stroke="#999" stroke-dasharray="3 3"/>' % (WIDTH, y, y),
        '<text y="%d">0</text><text x="%d" y="%d" text-anchor="end">%.3g s</text>'
        % (HEIGHT + 12, WIDTH, HEIGHT + 12, longest),
        '<text x="-3" y="9" text-anchor="end">%.2g</text>' % 10**high,
        '<text x="-3" y="%d" text-anchor="end">%.2g</text>' % (HEIGHT, 10**low),
    ]
    for i, curve in enumerate(series):
        path = " ".join("%.1f,%.1f" % place(*p) for p in curve if _drawable(p[1]))
        out.append(
            '<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>' % (path, COLORS[i % len(COLORS)])
        )
    return "".join(out)


def _drawable(loss):
    return math.isfinite(loss) and loss > 0
