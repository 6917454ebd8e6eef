"""Fused device operations, each with its plain torch reference.

One operation a module: what it computes (the reference) and the dispatched call; `device/` holds how Triton computes
it, under the same name. Imports torch and no other part of the package; Triton only where a kernel runs.
"""

from quail_frames.kernels.add_rms_norm import add_rms_norm, add_rms_norm_quantize
from quail_frames.kernels.attention import prefix_attention, suffix_attention, unified_attention
from quail_frames.kernels.attention_inputs import PagedContexts, QueryGroups, SuffixMask, Window, preorder
from quail_frames.kernels.block_scaled_matmul import block_scaled_matmul
from quail_frames.kernels.dispatch import Choice, choices, override, parse_pins, pinned, using
from quail_frames.kernels.gated_activation import silu_mul, silu_mul_quantize
from quail_frames.kernels.merge_attention import merge_attention, merge_attention_quantize
from quail_frames.kernels.qk_norm_rope_write import qk_norm_rope_write, rope_table
from quail_frames.kernels.quantize import Quantized, dequantize, dequantize_weight, quantize
from quail_frames.kernels.restricted_head import read_best, restricted_head, true_false_margins

__all__ = [
    "Choice",
    "PagedContexts",
    "Quantized",
    "QueryGroups",
    "SuffixMask",
    "Window",
    "add_rms_norm",
    "add_rms_norm_quantize",
    "block_scaled_matmul",
    "choices",
    "dequantize",
    "dequantize_weight",
    "merge_attention",
    "merge_attention_quantize",
    "override",
    "parse_pins",
    "pinned",
    "prefix_attention",
    "preorder",
    "qk_norm_rope_write",
    "quantize",
    "read_best",
    "restricted_head",
    "rope_table",
    "silu_mul",
    "silu_mul_quantize",
    "suffix_attention",
    "true_false_margins",
    "unified_attention",
    "using",
]
