"""Writes the two GGUF files of a checkpoint, and reads them back into the network.

    python3 export.py CHECKPOINT.pt OUT_FOLDER
"""
import json
import os
import sys

import numpy as np
import torch

import gguf_io
import prompt
from model import SHAPE, Eye

TEMPLATE = (
    "{{- bos_token -}}"
    "{%- if tools -%}{{ '<|im_start|>system\\nList of tools: ' + (tools | tojson) + "
    "'<|im_end|>\\n' }}{%- endif -%}"
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.content is string -%}{{ m.content }}{%- else -%}{%- for part in m.content -%}"
    "{{ '<image>' if part.type == 'image' else part.text }}{%- endfor -%}{%- endif -%}"
    "{{ '<|im_end|>\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}")


def vocabulary():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    tokens = {i: s for s, i in t["model"]["vocab"].items()}
    tokens |= {a["id"]: a["content"] for a in t["added_tokens"]}
    special = {a["id"] for a in t["added_tokens"]}
    n = len(tokens)
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    return ([tokens[i] for i in range(n)], [3 if i in special else 1 for i in range(n)], merges)


def common(kind, name, n):
    return [("general.architecture", "string", "clip" if kind == "mmproj" else "lfm2"),
            ("general.type", "string", kind), ("general.name", "string", name),
            ("general.size_label", "string", f"{n / 1e6:.1f}M"),
            ("general.license", "string", "apache-2.0"), ("general.file_type", "u32", 7),
            ("general.quantization_version", "u32", 2)]


def text_metadata(c):
    tokens, types, merges = vocabulary()
    find = tokens.index
    return [
        ("lfm2.block_count", "u32", len(c["layers"])), ("lfm2.context_length", "u32", 4096),
        ("lfm2.embedding_length", "u32", c["d"]), ("lfm2.feed_forward_length", "u32", c["ff"]),
        ("lfm2.attention.head_count", "u32", c["heads"]),
        ("lfm2.attention.head_count_kv", "i32[]",
         [c["kv_heads"] if k == "a" else 0 for k in c["layers"]]),
        ("lfm2.rope.freq_base", "f32", c["rope_base"]),
        ("lfm2.attention.layer_norm_rms_epsilon", "f32", c["eps"]),
        ("lfm2.vocab_size", "u32", c["vocab"]), ("lfm2.shortconv.l_cache", "u32", 3),
        ("tokenizer.ggml.model", "string", "gpt2"), ("tokenizer.ggml.pre", "string", "lfm2"),
        ("tokenizer.ggml.tokens", "string[]", tokens),
        ("tokenizer.ggml.token_type", "i32[]", types),
        ("tokenizer.ggml.merges", "string[]", merges),
        ("tokenizer.ggml.bos_token_id", "u32", find(prompt.BOS)),
        ("tokenizer.ggml.eos_token_id", "u32", find(prompt.IM_END)),
        ("tokenizer.ggml.padding_token_id", "u32", find("<|pad|>")),
        ("tokenizer.ggml.add_bos_token", "bool", True),
        ("tokenizer.chat_template", "string", TEMPLATE)]


def vision_metadata(c):
    return [
        ("clip.has_vision_encoder", "bool", True), ("clip.projector_type", "string", "lfm2"),
        ("clip.use_gelu", "bool", True), ("clip.vision.projection_dim", "u32", c["d"]),
        ("clip.vision.image_size", "u32", 256), ("clip.vision.patch_size", "u32", 16),
        ("clip.vision.embedding_length", "u32", c["dv"]),
        ("clip.vision.feed_forward_length", "u32", c["v_ff"]),
        ("clip.vision.block_count", "u32", c["v_layers"]),
        ("clip.vision.attention.head_count", "u32", c["v_heads"]),
        ("clip.vision.image_mean", "f32[]", [.5] * 3),
        ("clip.vision.image_std", "f32[]", [.5] * 3),
        ("clip.vision.attention.layer_norm_epsilon", "f32", c["v_eps"]),
        ("clip.vision.projector.scale_factor", "u32", 2)]


def is_quantized(name, a):
    return a.ndim == 2 and a.shape[1] % 32 == 0 and "position" not in name


def to_file(state):
    """(text tensors, vision tensors) with the names and shapes of the files."""
    text, vision = [], []
    for name, t in state.items():
        part, name = name.split(".", 1)
        a = t.float().cpu().numpy()
        if name == "v.patch_embd.weight":  # row, column, channel -> channel, row, column
            a = a.reshape(-1, 16, 16, 3).transpose(0, 3, 1, 2)
        (text if part == "text" else vision).append((name, a, is_quantized(name, a)))
    return text, vision


def from_files(text_path, vision_path, c=None):
    """The network with the dequantised weights of the files."""
    net = Eye(c or SHAPE)
    state = {}
    for part, path in (("text", text_path), ("vision", vision_path)):
        for name, a in gguf_io.read_tensors(path).items():
            if name == "v.patch_embd.weight":
                a = a.transpose(0, 2, 3, 1).reshape(a.shape[0], 768)
            state[f"{part}.{name}"] = torch.from_numpy(np.ascontiguousarray(a))
    net.load_state_dict(state)
    net.image_id = prompt.Vocabulary().id[prompt.IMAGE]
    return net.eval()


def main():
    checkpoint, folder = sys.argv[1:3]
    state = torch.load(checkpoint, map_location="cpu")["net"]
    text, vision = to_file(state)
    os.makedirs(folder, exist_ok=True)
    for part, kind, name, file, metadata in [
            (text, "model", "okibi eye", "okibi-eye.gguf", text_metadata(SHAPE)),
            (vision, "mmproj", "okibi eye vision", "mmproj-okibi-eye.gguf",
             vision_metadata(SHAPE))]:
        path = os.path.join(folder, file)
        n = sum(a.size for _, a, _ in part)
        gguf_io.write(path, common(kind, name, n) + metadata, part)
        print(file, n, "parameters", os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
