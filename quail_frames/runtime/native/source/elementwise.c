/* The elementwise groups of a decoder layer on rows of bfloat16, each in one pass over memory.

   They round where the eager forms in models/layers.py and models/rope.py do. Widths are whole numbers of 16. */
#include <math.h>
#include <stddef.h>

#include "bf16.h"

/* residual += x, unless x is NULL; out = residual / sqrt(mean(residual^2) + eps) * weight. */
void add_rms_norm(bf16 *residual, const bf16 *x, const bf16 *weight, bf16 *out, int64_t rows, int64_t width, float eps)
{
    for (int64_t row = 0; row < rows; row++) {
        bf16 *own = residual + row * width;
        __m512 squares = _mm512_setzero_ps();
        for (int64_t at = 0; at < width; at += 16) {
            __m512 value = load16(own + at);
            if (x != NULL) {
                value = rounded(_mm512_add_ps(value, load16(x + row * width + at)));
                store16(own + at, value);
            }
            squares = _mm512_fmadd_ps(value, value, squares);
        }
        const __m512 scale = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / (float)width + eps));
        for (int64_t at = 0; at < width; at += 16) {
            const __m512 normed = rounded(_mm512_mul_ps(load16(own + at), scale));
            store16(out + row * width + at, _mm512_mul_ps(normed, load16(weight + at)));
        }
    }
}

/* out [rows, width] = silu(gate) * up of gate_up [rows, 2 width]. */
void gated_silu(const bf16 *gate_up, bf16 *out, int64_t rows, int64_t width)
{
    const __m512 one = _mm512_set1_ps(1.0f), negative = _mm512_set1_ps(-LOG2_E);
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *gates = gate_up + row * 2 * width, *ups = gates + width;
        for (int64_t at = 0; at < width; at += 16) {
            const __m512 gate = load16(gates + at);
            const __m512 below = _mm512_add_ps(one, exp2_16(_mm512_mul_ps(gate, negative)));
            const __m512 active = rounded(_mm512_div_ps(gate, below));
            store16(out + row * width + at, _mm512_mul_ps(active, load16(ups + at)));
        }
    }
}

/* Turns the first `heads` heads of every row in place; row_width counts all of a row, cos and sin are [rows, half]. */
void rotate(bf16 *rows_of_heads, const float *cos, const float *sin, int64_t rows, int64_t row_width, int64_t heads,
            int64_t half)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++) {
            bf16 *first = rows_of_heads + row * row_width + head * 2 * half, *second = first + half;
            for (int64_t at = 0; at < half; at += 16) {
                const __m512 a = load16(first + at), b = load16(second + at);
                const __m512 c = _mm512_loadu_ps(cos + row * half + at), s = _mm512_loadu_ps(sin + row * half + at);
                store16(first + at, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
                store16(second + at, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
            }
        }
}
