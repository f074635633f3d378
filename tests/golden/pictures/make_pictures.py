#!/usr/bin/env python3
"""Writes the picture files of this folder and pictures.json, which says what each must decode to.

    python3 -m venv /tmp/ref && /tmp/ref/bin/pip install numpy==2.4.6 pillow==13.0.0
    /tmp/ref/bin/python tests/golden/pictures/make_pictures.py

PNG files are written here, sample by sample, in every colour kind and depth, so what they must
decode to is arithmetic. JPEG and WebP files are written by Pillow; expected pixels are Pillow's,
save for alpha on white and orientation, which are computed here. Each entry: width, height, SHA-256
of the upright RGB bytes, and the facts that `okibi inspect` shows.
"""

import hashlib
import io
import json
import struct
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

HERE = Path(__file__).parent
entries = {}


def half_up(x):
    return int(x + Fraction(1, 2))


def add(name, data, rgb, **facts):
    rgb = np.ascontiguousarray(rgb, dtype=np.uint8)
    (HERE / name).write_bytes(data)
    entries[name] = {"width": rgb.shape[1], "height": rgb.shape[0],
                     "rgb_sha256": hashlib.sha256(rgb.tobytes()).hexdigest(), **facts}


# --- PNG ---------------------------------------------------------------------------------------

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2)]


def chunk(kind, body=b""):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def pack_rows(samples, depth):
    """samples (h, w, channels) as filtered rows; the filters 0, 1, 2 take turns."""
    out, before = bytearray(), None
    step = max(1, samples.shape[2] * depth // 8)
    for y, row in enumerate(samples):
        flat = [int(v) for v in row.reshape(-1)]
        if depth == 16:
            line = b"".join(struct.pack(">H", v) for v in flat)
        elif depth == 8:
            line = bytes(flat)
        else:
            bits = "".join(format(v, f"0{depth}b") for v in flat)
            bits += "0" * (-len(bits) % 8)
            line = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        kind = y % 3
        left = bytes(step) + line
        above = before or bytes(len(line))
        previous = {0: bytes(len(line)), 1: left[:len(line)], 2: above}[kind]
        out += bytes([kind]) + bytes((a - b) & 255 for a, b in zip(line, previous))
        before = line
    return bytes(out)


def png(samples, colour, depth, interlaced=False, before_data=(), after_data=()):
    h, w = samples.shape[:2]
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        raw = b"".join(pack_rows(p, depth) for p in passes if p.shape[0] and p.shape[1])
    else:
        raw = pack_rows(samples, depth)
    data = zlib.compress(raw, 9)
    half = len(data) // 2
    header = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(before_data)
            + chunk(b"IDAT", data[:half]) + chunk(b"IDAT", data[half:])
            + b"".join(after_data) + chunk(b"IEND"))


def to_eight(value, alpha, depth):
    """One rounding of the sample over white, from 0..2^depth-1 to 0..255."""
    top = 2 ** depth - 1
    return half_up((Fraction(value * alpha) / top + (top - alpha)) * 255 / top)


def expected_png(samples, colour, depth, palette=None, palette_alpha=None, key=None):
    h, w = samples.shape[:2]
    top = 2 ** depth - 1
    out = np.zeros((h, w, 3), np.uint8)
    for y in range(h):
        for x in range(w):
            s = [int(v) for v in samples[y, x]]
            if colour == PALETTE:
                alpha = palette_alpha[s[0]] if palette_alpha and s[0] < len(palette_alpha) else 255
                out[y, x] = [to_eight(v, alpha, 8) for v in palette[s[0]]]
                continue
            alpha = s[-1] if colour in (GREY_ALPHA, RGBA) else top
            colours = s[:3] if colour in (RGB, RGBA) else s[:1] * 3
            if key is not None and s == list(key):
                alpha = 0
            out[y, x] = [to_eight(v, alpha, depth) for v in colours]
    return out


def pattern(h, w, channels, depth, seed):
    """Gradients, edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    top = 2 ** depth - 1
    planes = []
    for c in range(channels):
        plane = (x * (c + 1) / w + y * (3 - c) / h) / 4 % 1
        plane = np.where((x // 7 + y // 5 + c) % 4 == 0, 1 - plane, plane)
        planes.append(np.clip(np.rint(plane * top), 0, top))
    samples = np.stack(planes, -1).astype(np.int64)
    noise = rng.random((h, w, channels)) < 0.1
    return np.where(noise, rng.integers(0, top + 1, samples.shape), samples)


def exif(orientation, order="<"):
    mark = b"II" if order == "<" else b"MM"
    return (mark + struct.pack(order + "HIH", 42, 8, 2)
            + struct.pack(order + "HHII", 0x0100, 4, 1, 99)
            + struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0) + struct.pack(order + "I", 0))


def make_png():
    h, w = 13, 21
    kinds = [(GREY, d) for d in (1, 2, 4, 8, 16)] + [(RGB, 8), (RGB, 16)]
    kinds += [(PALETTE, d) for d in (1, 2, 4, 8)]
    kinds += [(GREY_ALPHA, 8), (GREY_ALPHA, 16), (RGBA, 8), (RGBA, 16)]
    words = {GREY: "grey", RGB: "RGB", PALETTE: "palette", GREY_ALPHA: "grey + alpha", RGBA: "RGBA"}
    for colour, depth in kinds:
        for interlaced in (False, True):
            samples = pattern(h, w, CHANNELS[colour], depth, 100 * colour + depth)
            extra, palette = [], None
            if colour == PALETTE:
                rng = np.random.default_rng(depth)
                palette = rng.integers(0, 256, (2 ** depth, 3)).tolist()
                extra = [chunk(b"PLTE", bytes(sum(palette, [])))]
            name = f"png_{words[colour].replace(' + ', '_').lower()}{depth}{'_interlaced' * interlaced}.png"
            add(name, png(samples, colour, depth, interlaced, extra),
                expected_png(samples, colour, depth, palette), colour=words[colour], bits=depth,
                alpha=colour in (GREY_ALPHA, RGBA), progressive=interlaced)
    # Transparency by tRNS: one grey or colour as the key, an alpha for some palette entries.
    for colour, depth in ((GREY, 2), (GREY, 8), (GREY, 16), (RGB, 8), (RGB, 16), (PALETTE, 4)):
        samples = pattern(h, w, CHANNELS[colour], depth, 7)
        key = tuple(int(v) for v in samples[4, 9])
        before, palette, palette_alpha = [], None, None
        if colour == PALETTE:
            palette = [[(17 * i) % 256, (91 * i) % 256, 255 - 9 * i] for i in range(16)]
            palette_alpha = [0, 255, 128, 1, 254, 77]
            before = [chunk(b"PLTE", bytes(sum(palette, []))), chunk(b"tRNS", bytes(palette_alpha))]
            key = None
        else:
            before = [chunk(b"tRNS", b"".join(struct.pack(">H", v) for v in key))]
        add(f"png_key_{words[colour].lower()}{depth}.png", png(samples, colour, depth, False, before),
            expected_png(samples, colour, depth, palette, palette_alpha, key), colour=words[colour],
            bits=depth, alpha=True)
    # Every 16-bit grey once.
    every = np.arange(65536).reshape(256, 256, 1)
    add("png_every_grey16.png", png(every, GREY, 16), expected_png(every, GREY, 16), colour="grey",
        bits=16)
    # Orientation: before and after the data, both byte orders. Things to be ignored beside it.
    upright = pattern(10, 15, 3, 8, 5)
    for o in range(1, 9):
        body = chunk(b"eXIf", exif(o, "<>"[o % 2]))
        extras = [chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(3000))), chunk(b"gAMA", bytes(4))]
        add(f"png_orientation{o}.png", png(stored(upright, o), RGB, 8, False,
            extras + [body] * (o < 5), [body] * (o >= 5)), upright, orientation=o, icc=True)
    # Animations: the default picture, whether or not it is a frame.
    frames = [Image.fromarray(pattern(12, 16, 3, 8, s).astype(np.uint8)) for s in (1, 2, 3)]
    for in_animation in (True, False):
        out = io.BytesIO()
        frames[0].save(out, "png", save_all=True, append_images=frames[1:], duration=50,
                       default_image=not in_animation)
        add(f"png_animated{'' if in_animation else '_with_default'}.png", out.getvalue(),
            np.asarray(frames[0]), animated=True)


def stored(upright, o):
    """The pixels a file of orientation o holds for an upright picture: the inverse of what a viewer
    does (EXIF 2.3: which side of the scene the first row and column are)."""
    undo = {1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1],
            4: lambda a: a[::-1], 5: lambda a: a.swapaxes(0, 1),
            6: lambda a: a.swapaxes(0, 1)[::-1], 7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
            8: lambda a: a.swapaxes(0, 1)[:, ::-1]}
    return undo[o](upright)


# --- JPEG --------------------------------------------------------------------------------------

def jpeg_bytes(array, mode, **options):
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8), mode).save(out, "jpeg", **options)
    return out.getvalue()


def by_pillow(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def without_segment(data, marker):
    at = 2
    while data[at + 1] != marker:
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:]


def ycc(rgb):
    r, g, b = (rgb[..., i].astype(float) for i in range(3))
    return np.stack([0.299 * r + 0.587 * g + 0.114 * b,
                     128 - 0.168736 * r - 0.331264 * g + 0.5 * b,
                     128 + 0.5 * r - 0.418688 * g - 0.081312 * b], -1).round().clip(0, 255)


def smooth(h, w, channels):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([127.5 + 127.5 * np.sin(x / (4 + c) + y / (9 - c) + c) for c in range(channels)],
                    -1).round().astype(np.uint8)


def make_jpeg():
    rgb, ink = smooth(29, 45, 3), smooth(29, 45, 4)
    for name, options in {"420": dict(subsampling=2), "422": dict(subsampling=1),
                          "444": dict(subsampling=0), "optimized": dict(optimize=True),
                          "progressive": dict(progressive=True),
                          "progressive444": dict(progressive=True, subsampling=0),
                          "restarts": dict(restart_marker_blocks=2),
                          "icc": dict(icc_profile=bytes(200))}.items():
        data = jpeg_bytes(rgb, "RGB", quality=80, **options)
        add(f"jpeg_{name}.jpg", data, by_pillow(data), colour="YCbCr", icc=name == "icc",
            progressive=name.startswith("progressive"))
    data = jpeg_bytes(rgb, "RGB", quality=80, keep_rgb=True)
    add("jpeg_rgb.jpg", data, by_pillow(data), colour="RGB")
    data = jpeg_bytes(rgb[..., 0], "L", quality=80)
    add("jpeg_grey.jpg", data, by_pillow(data), colour="grey")
    for name, options in (("cmyk", {}), ("cmyk_progressive", dict(progressive=True))):
        data = jpeg_bytes(ink, "CMYK", quality=85, **options)
        add(f"jpeg_{name}.jpg", data, by_pillow(data), colour="CMYK", progressive=bool(options))
    plain = without_segment(jpeg_bytes(ink, "CMYK", quality=85), 0xee)
    add("jpeg_cmyk_without_marker.jpg", plain, by_pillow(plain), colour="CMYK")
    # YCCK: light RGB as YCbCr in the first three channels, and a marker that says so. Pillow inverts
    # what it writes, so it is given the inverse.
    light = np.dstack([ycc(smooth(29, 45, 3)), 255 - ink[..., 3]])
    data = bytearray(jpeg_bytes(255 - light, "CMYK", quality=85))
    at = data.index(b"\xff\xee") + 4
    assert data[at:at + 5] == b"Adobe"
    data[at + 11] = 2
    add("jpeg_ycck.jpg", bytes(data), by_pillow(bytes(data)), colour="YCCK")
    # Blocks of one colour decode alike however they are turned.
    upright = np.kron(pattern(3, 5, 3, 8, 9), np.ones((8, 8, 1))).astype(np.uint8)
    want = None
    for o in range(1, 9):
        body = b"Exif\0\0" + exif(o, "><"[o % 2])
        data = jpeg_bytes(stored(upright, o), "RGB", quality=100, subsampling=0, exif=body)
        want = by_pillow(data) if o == 1 else want
        add(f"jpeg_orientation{o}.jpg", data, want, orientation=o)


# --- WebP --------------------------------------------------------------------------------------

def webp_bytes(array, mode, **options):
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8), mode).save(out, "webp", **options)
    return out.getvalue()


def on_white(rgba):
    out = np.zeros(rgba.shape[:2] + (3,), np.uint8)
    for index in np.ndindex(rgba.shape[:2]):
        *colours, alpha = (int(v) for v in rgba[index])
        out[index] = [to_eight(v, alpha, 8) for v in colours]
    return out


def riff(chunks):
    body = b"WEBP"
    for kind, data in chunks:
        body += kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def u24(v):
    return struct.pack("<I", v)[:3]


def make_webp():
    rgb = pattern(22, 31, 3, 8, 11)
    rgba = pattern(22, 31, 4, 8, 12)
    add("webp_lossless.webp", webp_bytes(rgb, "RGB", lossless=True), rgb, colour="lossless RGB")
    add("webp_lossless_alpha.webp", webp_bytes(rgba, "RGBA", lossless=True, exact=True),
        on_white(rgba), colour="lossless RGBA", alpha=True)
    data = webp_bytes(smooth(29, 45, 3), "RGB", quality=80)
    add("webp_lossy.webp", data, by_pillow(data), colour="YCbCr")
    data = webp_bytes(smooth(29, 45, 4), "RGBA", quality=80)
    add("webp_lossy_alpha.webp", data,
        on_white(np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))), colour="YCbCr + alpha",
        alpha=True)
    upright = pattern(10, 15, 3, 8, 5)
    for o in range(1, 9):
        body = (b"Exif\0\0" if o % 2 else b"") + exif(o, "<>"[o // 2 % 2])
        add(f"webp_orientation{o}.webp",
            webp_bytes(stored(upright, o), "RGB", lossless=True, exif=body), upright, orientation=o)
    # An animation whose first frame covers part of the canvas.
    first, second = pattern(9, 11, 4, 8, 3), pattern(9, 11, 3, 8, 4)
    frames = []
    for array, mode, x, y in ((first, "RGBA", 6, 4), (second, "RGB", 0, 0)):
        still = webp_bytes(array, mode, lossless=True, exact=True)
        at = still.index(b"VP8L")
        bitstream = still[at:]
        frames.append((b"ANMF", u24(x // 2) + u24(y // 2) + u24(10) + u24(8) + u24(40) + b"\0"
                       + bitstream))
    header = (b"VP8X", bytes([0x12, 0, 0, 0]) + u24(19) + u24(14))
    data = riff([header, (b"ANIM", bytes([9, 99, 200, 255, 0, 0])), *frames])
    canvas = np.full((15, 20, 3), 255, np.uint8)
    canvas[4:13, 6:17] = on_white(first)
    add("webp_animated.webp", data, canvas, animated=True, alpha=True, colour="lossless RGBA")


def main():
    make_png()
    make_jpeg()
    make_webp()
    document = {"source": f"numpy {np.__version__}, Pillow {PIL.__version__}", "date": "2026-11-30",
                "command": "tests/golden/pictures/make_pictures.py", "pictures": entries}
    (HERE / "pictures.json").write_text(json.dumps(document, indent=1) + "\n")
    print(len(entries), "pictures,", sum((HERE / n).stat().st_size for n in entries), "bytes")


if __name__ == "__main__":
    main()
