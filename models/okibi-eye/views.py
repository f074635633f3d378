"""From a picture to what the encoder sees: which views, their sizes, their pixels.

The numbers are those of LFM2.5-VL (64..256 tokens a view, tiles of 512, at most 10, a thumbnail);
the resampling is the fixed-point antialiased bilinear one, exact to the last grey level.
"""
import math

import numpy as np

PATCH, FACTOR, TILE = 16, 32, 512
MIN_AREA, MAX_AREA = 64 * 1024, 256 * 1024
MIN_TILES, MAX_TILES, TOLERANCE = 2, 10, 2.0


def smart_size(w, h):
    """Size (w, h) of the one view a picture of w x h is stretched to."""
    f = FACTOR
    w2, h2 = max(f, f * round(w / f)), max(f, f * round(h / f))
    if w2 * h2 > MAX_AREA:
        b = math.sqrt(w * h / MAX_AREA)
        return max(f, f * math.floor(w / b / f)), max(f, f * math.floor(h / b / f))
    if w2 * h2 < MIN_AREA:
        b = math.sqrt(MIN_AREA / (w * h))
        return f * math.ceil(w * b / f), f * math.ceil(h * b / f)
    return w2, h2


def is_tiled(w, h):
    w2, h2 = max(16, 32 * round(w / 32)), max(16, 32 * round(h / 32))
    return w2 * h2 > MAX_AREA * TOLERANCE


_GRIDS = sorted(((c, r) for c in range(1, MAX_TILES + 1) for r in range(1, MAX_TILES + 1)
                 if MIN_TILES <= c * r <= MAX_TILES), key=lambda g: g[0] * g[1])


def grid_of(w, h):
    """(columns, rows) of a tiled picture."""
    aspect, best, best_error = w / h, None, math.inf
    for c, r in _GRIDS:
        error = abs(aspect - c / r)
        if error < best_error or (error == best_error and w * h > 0.5 * TILE * TILE * c * r):
            best, best_error = (c, r), error
    return best


def plan(w, h):
    """((columns, rows) or None, size of the single view or of the thumbnail)."""
    return (grid_of(w, h) if is_tiled(w, h) else None), smart_size(w, h)


def _weights(n, m):
    """One pass of the triangle filter from n to m samples: [(first, integer weights)], shift."""
    scale = n / m
    radius = max(1.0, scale)
    rows, largest = [], 0.0
    for i in range(m):
        centre = (i + 0.5) * scale
        lo = max(0, int(centre - radius + 0.5))
        hi = min(n, int(centre + radius + 0.5))
        g = np.maximum(0.0, 1.0 - np.abs(np.arange(lo, hi) + 0.5 - centre) / radius)
        g /= g.sum()
        rows.append((lo, g))
        largest = max(largest, g.max())
    shift = max(p for p in range(23) if math.floor(0.5 + largest * 2**p) < 32768)
    return [(lo, np.floor(0.5 + g * 2**shift).astype(np.int64)) for lo, g in rows], shift


def _resize_rows(a, m):
    """Resamples axis 0 of a uint8 array to m rows."""
    if a.shape[0] == m:
        return a
    rows, shift = _weights(a.shape[0], m)
    out = np.empty((m,) + a.shape[1:], np.uint8)
    for i, (lo, q) in enumerate(rows):
        s = np.tensordot(q, a[lo:lo + len(q)].astype(np.int64), 1) + (1 << (shift - 1))
        out[i] = np.clip(s >> shift, 0, 255)
    return out


def resize(rgb, w, h):
    """uint8 (H, W, 3) to (h, w, 3): columns first, then rows."""
    across = _resize_rows(np.ascontiguousarray(rgb.transpose(1, 0, 2)), w).transpose(1, 0, 2)
    return _resize_rows(np.ascontiguousarray(across), h)


def views(rgb, resizer=resize):
    """(grid or None, list of uint8 views): tiles row by row and the thumbnail, or the one view."""
    h, w = rgb.shape[:2]
    grid, (vw, vh) = plan(w, h)
    single = resizer(rgb, vw, vh)
    if grid is None:
        return None, [single]
    c, r = grid
    canvas = resizer(rgb, TILE * c, TILE * r)
    tiles = [canvas[TILE * y:TILE * (y + 1), TILE * x:TILE * (x + 1)]
             for y in range(r) for x in range(c)]
    return grid, tiles + [single]


def position_weights(m, n=16):
    """(m, n) float matrix that resamples the position table's axis from n to m, antialiased."""
    out = np.zeros((m, n))
    scale = n / m
    radius = max(1.0, scale)
    for i in range(m):
        centre = (i + 0.5) * scale
        lo, hi = max(0, int(centre - radius + 0.5)), min(n, int(centre + radius + 0.5))
        g = np.maximum(0.0, 1.0 - np.abs(np.arange(lo, hi) + 0.5 - centre) / radius)
        out[i, lo:hi] = g / g.sum()
    return out
