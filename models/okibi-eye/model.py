"""The network: SigLIP2-NaFlex encoder, projector and LFM2 decoder, in plain torch.

Parameter names are those of the GGUF files, so exporting is a walk over the state dict. The decoder
runs a shared prefix (the picture) and many suffixes (questions about it) in one row.
"""
import torch
import torch.nn.functional as F
from torch import nn

import views

SHAPE = {
    "d": 256, "heads": 8, "kv_heads": 4, "ff": 640, "layers": "cacacacaa", "rope_base": 1e6,
    "eps": 1e-5, "vocab": 2560, "dv": 256, "v_heads": 4, "v_ff": 1024, "v_layers": 7,
    "v_eps": 1e-6, "projector": 512}
TINY = dict(SHAPE, d=64, heads=4, kv_heads=2, ff=64, layers="cac", dv=64, v_heads=2, v_ff=64,
            v_layers=2, projector=64)


def rms(x, weight, eps):
    with torch.autocast(x.device.type, enabled=False):
        return F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


class LayerNorm(nn.LayerNorm):
    """In the type of its input."""

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype),
                                self.eps)


def linear(x, out, bias=False):
    return nn.Linear(x, out, bias=bias)


class Norm(nn.Module):
    """RMSNorm weight; has no bias, unlike the encoder's LayerNorm."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


class Mix(nn.Module):
    pass


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class DecoderLayer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        d, self.eps, self.kind = c["d"], c["eps"], kind
        self.heads, self.kv_heads, self.hd = c["heads"], c["kv_heads"], d // c["heads"]
        self.attn_norm, self.ffn_norm = Norm(d), Norm(d)
        if kind == "a":
            kv = self.kv_heads * self.hd
            self.attn_q, self.attn_k, self.attn_v = linear(d, d), linear(d, kv), linear(d, kv)
            self.attn_output = linear(d, d)
            self.attn_q_norm, self.attn_k_norm = Norm(self.hd), Norm(self.hd)
        else:
            self.shortconv = Mix()
            self.shortconv.in_proj, self.shortconv.out_proj = linear(d, 3 * d), linear(d, d)
            self.shortconv.conv = Mix()
            self.shortconv.conv.weight = nn.Parameter(torch.randn(d, 3) * 0.3 +
                                                      torch.tensor([0., 0., 1.]))
        self.ffn_gate, self.ffn_up = linear(d, c["ff"]), linear(d, c["ff"])
        self.ffn_down = linear(c["ff"], d)

    def short_conv(self, r, tail, prefix_end):
        """Taps over the two rows before; a suffix's first rows see the end of the prefix."""
        conv = self.shortconv
        b, c, x = conv.in_proj(r).chunk(3, -1)
        u = b * x
        last = u.index_select(1, prefix_end)
        w = conv.conv.weight.to(u.dtype)
        one = F.pad(u, (0, 0, 1, 0))[:, :-1] * tail[0] + last[:, 1:] * tail[1]
        two = F.pad(u, (0, 0, 2, 0))[:, :-2] * tail[2] + last[:, 1:] * tail[3] + \
            last[:, :1] * tail[1]
        return conv.out_proj(c * (two * w[:, 0] + one * w[:, 1] + u * w[:, 2]))

    def attention(self, r, cos, sin, bias):
        b, n, _ = r.shape
        q = self.attn_q(r).view(b, n, self.heads, self.hd)
        k = self.attn_k(r).view(b, n, self.kv_heads, self.hd)
        v = self.attn_v(r).view(b, n, self.kv_heads, self.hd)
        q = rotate(rms(q, self.attn_q_norm.weight, self.eps), cos, sin).to(r.dtype)
        k = rotate(rms(k, self.attn_k_norm.weight, self.eps), cos, sin).to(r.dtype)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=2) for t in (k, v))
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                           v.transpose(1, 2), attn_mask=bias)
        return self.attn_output(o.transpose(1, 2).reshape(b, n, -1))

    def forward(self, x, cos, sin, bias, tail, prefix_end):
        r = rms(x, self.attn_norm.weight, self.eps)
        x = x + (self.attention(r, cos, sin, bias) if self.kind == "a" else
                 self.short_conv(r, tail, prefix_end))
        z = rms(x, self.ffn_norm.weight, self.eps)
        return x + self.ffn_down(F.silu(self.ffn_gate(z)) * self.ffn_up(z))


class EncoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["dv"]
        self.heads = c["v_heads"]
        self.ln1, self.ln2 = LayerNorm(d, c["v_eps"]), LayerNorm(d, c["v_eps"])
        self.attn_q, self.attn_k = linear(d, d, True), linear(d, d, True)
        self.attn_v, self.attn_out = linear(d, d, True), linear(d, d, True)
        self.ffn_up, self.ffn_down = linear(d, c["v_ff"], True), linear(c["v_ff"], d, True)

    def forward(self, z):
        b, n, d = z.shape
        a = self.ln1(z)
        q, k, v = (f(a).view(b, n, self.heads, -1).transpose(1, 2)
                   for f in (self.attn_q, self.attn_k, self.attn_v))
        o = F.scaled_dot_product_attention(q, k, v)
        z = z + self.attn_out(o.transpose(1, 2).reshape(b, n, d))
        return z + self.ffn_down(F.gelu(self.ffn_up(self.ln2(z)), approximate="tanh"))


class Encoder(nn.Module):
    """uint8 views (V, H, W, 3) of one size to rows (V, tokens, d)."""

    def __init__(self, c):
        super().__init__()
        d = c["dv"]
        self.v = Mix()
        self.v.patch_embd = linear(768, d, True)
        self.v.position_embd = Mix()
        self.v.position_embd.weight = nn.Parameter(torch.randn(256, d) * 0.02)
        self.v.blk = nn.ModuleList(EncoderLayer(c) for _ in range(c["v_layers"]))
        self.v.post_ln = LayerNorm(d, c["v_eps"])
        self.mm = nn.ModuleDict({"1": linear(4 * d, c["projector"], True),
                                 "2": linear(c["projector"], c["d"], True)})
        self.resized = {}

    def positions(self, gh, gw):
        device = self.v.position_embd.weight.device
        if (gh, gw) not in self.resized:
            self.resized[gh, gw] = [torch.tensor(views.position_weights(m), dtype=torch.float32,
                                                 device=device) for m in (gh, gw)]
        wh, ww = self.resized[gh, gw]
        table = self.v.position_embd.weight.view(16, 16, -1)
        with torch.autocast(device.type, enabled=False):
            return torch.einsum("yj,xk,jkd->yxd", wh, ww, table).reshape(gh * gw, -1)

    def forward(self, pixels, dtype=torch.float32):
        n, h, w, _ = pixels.shape
        gh, gw = h // 16, w // 16
        x = pixels.to(dtype) / 127.5 - 1 if dtype == torch.float32 else \
            (pixels.float() / 127.5 - 1).to(dtype)
        x = x.view(n, gh, 16, gw, 16, 3).transpose(2, 3).reshape(n, gh * gw, 768)
        z = self.v.patch_embd(x).to(dtype) + self.positions(gh, gw).to(dtype)
        for layer in self.v.blk:
            z = layer(z)
        z = self.v.post_ln(z)
        t = z.view(n, gh // 2, 2, gw // 2, 2, -1).permute(0, 1, 3, 2, 4, 5)
        t = t.reshape(n, gh * gw // 4, -1)
        return self.mm["2"](F.gelu(self.mm["1"](t)))


class Eye(nn.Module):
    def __init__(self, c=None):
        super().__init__()
        self.c = c = c or SHAPE
        self.vision = Encoder(c)
        self.text = Mix()
        self.text.token_embd = nn.Embedding(c["vocab"], c["d"])
        self.text.blk = nn.ModuleList(DecoderLayer(c, kind) for kind in c["layers"])
        self.text.token_embd_norm = Norm(c["d"])
        hd = c["d"] // c["heads"]
        angle = torch.outer(torch.arange(4096).double(),
                            c["rope_base"] ** (-torch.arange(0, hd, 2).double() / hd))
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        self.init()

    def init(self):
        n = len(self.c["layers"])
        for name, p in self.named_parameters():
            if p.dim() == 2 and "conv.weight" not in name and "position" not in name:
                nn.init.normal_(p, std=p.shape[1] ** -0.5 * 0.8)
                if name.endswith(("ffn_down.weight", "attn_output.weight", "out_proj.weight",
                                  "attn_out.weight")):
                    p.data *= (2 * n) ** -0.5
            if name.endswith(".bias"):
                nn.init.zeros_(p)
        nn.init.normal_(self.text.token_embd.weight, std=0.03)

    def embed(self, ids, rows, dtype=torch.float32):
        """ids (B, N); rows (B, n, d) for the image tokens, whose places are those of ids[0]."""
        x = self.text.token_embd(ids).to(dtype)
        if rows is None:
            return x
        at = (ids[0] == self.image_id).nonzero()[:, 0]
        return x.index_copy(1, at, rows.to(dtype))

    def decode(self, x, segment, place, offset, n_prefix, dtype=torch.float32):
        """x (B, N, d): the prefix and, after it, several suffixes that do not see each other.

        segment (B, N): 0 for the prefix, 1, 2, ... for suffixes, -1 for padding; place: position of
        each token in its own prompt; offset: its index in its suffix. Returns the final rows.
        """
        n = x.shape[1]
        q, k = segment[:, :, None], segment[:, None, :]
        below = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        allowed = ((q == k) | (k == 0)) & below
        bias = torch.zeros(allowed.shape, dtype=dtype, device=x.device)
        bias = bias.masked_fill_(~allowed, -1e4 if dtype == torch.bfloat16 else -1e9)[:, None]
        first, second = ((segment > 0) & (offset == i) for i in (0, 1))
        tail = torch.stack((~first, first, ~(first | second), second))[..., None].to(dtype)
        end = torch.tensor([n_prefix - 2, n_prefix - 1], device=x.device)
        cos, sin = self.cos[place][:, :, None], self.sin[place][:, :, None]
        for layer in self.text.blk:
            x = layer(x, cos, sin, bias, tail, end)
        return rms(x, self.text.token_embd_norm.weight, self.c["eps"])

    def logits(self, rows):
        return F.linear(rows, self.text.token_embd.weight)
