"""Just enough GGUF: writes F32 and Q8_0 tensors with their metadata, and reads such files back."""
import struct

import numpy as np

F32, Q8_0 = 0, 8
_ALIGN = 32
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_NUMBERS = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "string": 8}


def quantize(a):
    """Rows of a multiple of 32 values to Q8_0 blocks: an f16 scale and 32 signed bytes each."""
    x = np.ascontiguousarray(a, np.float32).reshape(-1, 32)
    d = np.abs(x).max(1) / np.float32(127)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    scaled = x * inverse[:, None]
    q = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(.5))).astype(np.int8)
    out = np.empty((len(x), 34), np.uint8)
    out[:, :2] = d.astype(np.float16)[:, None].view(np.uint8)
    out[:, 2:] = q.view(np.uint8)
    return out.tobytes()


def dequantize(data, shape):
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 34)
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return (blocks[:, 2:].view(np.int8).astype(np.float32) * d).reshape(shape)


def _string(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def _value(kind, value):
    if kind.endswith("[]"):
        number = _NUMBERS[kind[:-2]]
        body = b"".join(_value(kind[:-2], v)[4:] for v in value)
        return struct.pack("<IIQ", 9, number, len(value)) + body
    number = _NUMBERS[kind]
    if number == 8:
        return struct.pack("<I", 8) + _string(value)
    return struct.pack("<I" + _FORMATS[number], number, value)


def write(path, metadata, tensors):
    """metadata: [(key, kind, value)]; tensors: [(name, array, is_quantized)], numpy shapes."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, kind, value in metadata:
        head += _string(key) + _value(kind, value)
    blobs, at = [], 0
    for name, a, is_quantized in tensors:
        data = quantize(a) if is_quantized else np.ascontiguousarray(a, "<f4").tobytes()
        head += _string(name) + struct.pack("<I", a.ndim)
        head += struct.pack(f"<{a.ndim}Q", *reversed(a.shape))
        head += struct.pack("<IQ", Q8_0 if is_quantized else F32, at)
        data += b"\0" * (-len(data) % _ALIGN)
        blobs.append(data)
        at += len(data)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % _ALIGN) + b"".join(blobs))


def read_tensors(path):
    """{name: float32 array} of a file that write() made."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    def skip(kind):
        if kind == 8:
            string()
        elif kind == 9:
            inner, n = take("IQ")
            for _ in range(n):
                skip(inner)
        else:
            take(_FORMATS[kind])

    _, _, n_tensors, n_keys = take("4sIQQ")
    for _ in range(n_keys):
        string()
        skip(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = string()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        infos.append((name, shape, *take("IQ")))
    base = -(-at // _ALIGN) * _ALIGN
    out = {}
    for name, shape, kind, offset in infos:
        n = int(np.prod(shape))
        size = n // 32 * 34 if kind == Q8_0 else 4 * n
        raw = data[base + offset:base + offset + size]
        out[name] = (dequantize(raw, shape) if kind == Q8_0 else
                     np.frombuffer(raw, "<f4").reshape(shape).copy())
    return out
