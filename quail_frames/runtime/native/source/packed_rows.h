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

/* Thirty-two numbers of bfloat16 by the places that they have in pairs. */
typedef struct {
    __m512 even, odd;
} Pairs;

static inline Pairs pairs_at(const bf16 *from)
{
    const __m512i both = _mm512_loadu_si512(from);
    const __m512i odd = _mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000));
    return (Pairs){(__m512)_mm512_slli_epi32(both, 16), (__m512)odd};
}

/* packed = x / sqrt(mean(x^2) + eps) * weight. */
static inline void pack_norm(const bf16 *x, const bf16 *weight, float eps, int64_t rows, int64_t width, bf16 *packed)
{
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *own = x + row * width;
        bf16 *to = packed_row(packed, row, width);
        __m512 evens = _mm512_setzero_ps(), odds = _mm512_setzero_ps();
        for (int64_t at = 0; at < width; at += STEP) {
            const Pairs value = pairs_at(own + at);
            evens = _mm512_fmadd_ps(value.even, value.even, evens);
            odds = _mm512_fmadd_ps(value.odd, value.odd, odds);
        }
        const float mean = _mm512_reduce_add_ps(_mm512_add_ps(evens, odds)) / (float)width;
        const __m512 scale = _mm512_set1_ps(1.0f / sqrtf(mean + eps));
        for (int64_t at = 0; at < width; at += STEP) {
            const Pairs value = pairs_at(own + at), times = pairs_at(weight + at);
            const __m512 even = _mm512_mul_ps(_mm512_mul_ps(value.even, scale), times.even);
            const __m512 odd = _mm512_mul_ps(_mm512_mul_ps(value.odd, scale), times.odd);
            _mm512_store_si512(to + at * ROWS, paired(even, odd));
        }
    }
    fill(packed, rows, width);
}

#endif
