"""Draws histograms of several measurements as small multiples, straight to SVG: nothing to install."""

from curves import COLORS, MARGIN, page

WIDTH, HEIGHT = 150, 70


def svg(panels, names, edges, per_row):
    """`panels`: (title, [values of each name]); a bin is from one edge up to the next, the last one has no end."""
    drawings = [_panel(title, series, edges) for title, series in panels]
    return page(drawings, names, per_row, WIDTH + MARGIN, HEIGHT + MARGIN)


def shares(values, edges):
    """The part of the values in each bin."""
    ends = [*edges[1:], float("inf")]
    return [sum(a <= v < b for v in values) / max(1, len(values)) for a, b in zip(edges, ends)]


def _panel(title, series, edges):
    slot = WIDTH / len(edges)
    bar = 0.8 * slot / len(series)
    out = ['<text y="-6">%s</text>' % title, '<path d="M0 %d H%d" stroke="#999"/>' % (HEIGHT, WIDTH)]
    for i, values in enumerate(series):
        for k, share in enumerate(shares(values, edges)):
            height = HEIGHT * share
            place = (k * slot + (i + 0.25) * bar, HEIGHT - height, bar, height, COLORS[i % len(COLORS)])
            out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' % place)
    for k, edge in enumerate(edges):
        label = "%d+" % edge if k == len(edges) - 1 else "%d" % edge
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % ((k + 0.5) * slot, HEIGHT + 12, label))
    return "".join(out)
