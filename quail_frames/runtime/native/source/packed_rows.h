/* Rows as products read them: blocks of 32 rows, and in a block one step of 32 numbers after another, 32 rows of 64
   bytes each. */
#ifndef QUAIL_FRAMES_PACKED_ROWS_H
#define QUAIL_FRAMES_PACKED_ROWS_H

#include <math.h>

#include "tiles.h"

enum { STEP = 32 };

static inline int64_t blocks_of(int64_t rows) { return (rows + ROWS - 1) / ROWS; }

static inline bf16 *packed_row(bf16 *packed, int64_t row, int64_t width)
{
    return packed + row / ROWS * ROWS * width + row % ROWS * STEP;
}

/* Zeros in the rows that the last block has too many. */
static inline void fill(bf16 *packed, int64_t rows, int64_t width)
{
    for (int64_t row = rows; row < blocks_of(rows) * ROWS; row++)
        for (int64_t at = 0; at < width; at += STEP)
            _mm512_store_si512(packed_row(packed, row, width) + at * ROWS, _mm512_setzero_si512());
}

static inline void pack(const bf16 *x, int64_t rows, int64_t width, bf16 *packed)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < width; at += STEP)
            _mm512_store_si512(packed_row(packed, row, width) + at * ROWS, _mm512_loadu_si512(x + row * width + at));
    fill(packed, rows, width);
}

/* packed = x / sqrt(mean(x^2) + eps) * weight. */
static inline void pack_norm(const bf16 *x, const bf16 *weight, float eps, int64_t rows, int64_t width, bf16 *packed)
{
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *own = x + row * width;
        __m512 squares = _mm512_setzero_ps();
        for (int64_t at = 0; at < width; at += TILE) {
            const __m512 value = load16(own + at);
            squares = _mm512_fmadd_ps(value, value, squares);
        }
        const __m512 scale = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / (float)width + eps));
        for (int64_t at = 0; at < width; at += STEP) {
            const __m512 low = rounded(_mm512_mul_ps(load16(own + at), scale));
            const __m512 high = rounded(_mm512_mul_ps(load16(own + at + TILE), scale));
            store32(packed_row(packed, row, width) + at * ROWS, _mm512_mul_ps(low, load16(weight + at)),
                    _mm512_mul_ps(high, load16(weight + at + TILE)));
        }
    }
    fill(packed, rows, width);
}

#endif
