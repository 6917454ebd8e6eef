/* Lines of bfloat16 laid out as AMX tiles. */
#ifndef QUAIL_FRAMES_PACKING_H
#define QUAIL_FRAMES_PACKING_H

#include <stddef.h>

#include "tiles.h"

/* A 16 by 16 matrix of 32 bits, in place. */
static inline void transpose(__m512i *x)
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(x[i], x[i + 1]), b = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(x[i + 2], x[i + 3]), d = _mm512_unpackhi_epi32(x[i + 2], x[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
        x[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        x[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        x[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

static inline __m512i line_at(const bf16 *line, int64_t at)
{
    return line == NULL ? _mm512_setzero_si512() : _mm512_loadu_si512(line + at);
}

/* Sixteen lines of `dim` numbers as B tiles: pairs of numbers down, lines across; NULL stands for zeros. */
static inline void pack_across(bf16 *to, const bf16 *const *lines, int64_t dim)
{
    for (int64_t at = 0; at < dim; at += 32) {
        __m512i found[TILE];
        for (int line = 0; line < TILE; line++) found[line] = line_at(lines[line], at);
        transpose(found);
        for (int pair = 0; pair < TILE; pair++) _mm512_store_si512(to + at * TILE + pair * 32, found[pair]);
    }
}

/* The same lines as A tiles: lines down, numbers across. */
static inline void pack_down(bf16 *to, const bf16 *const *lines, int64_t dim)
{
    for (int64_t at = 0; at < dim; at += 32)
        for (int line = 0; line < TILE; line++)
            _mm512_store_si512(to + at * TILE + line * 32, line_at(lines[line], at));
}

/* Thirty-two lines as A tiles on their sides: numbers down, lines across. */
static inline void pack_turned(bf16 *to, const bf16 *const *lines, int64_t dim)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t at = 0; at < dim; at += 32) {
        __m512i left[TILE], right[TILE]; /* pairs of lines down, the numbers of a pair side by side */
        for (int pair = 0; pair < TILE; pair++) {
            const __m512i a = line_at(lines[2 * pair], at), b = line_at(lines[2 * pair + 1], at);
            left[pair] = _mm512_permutex2var_epi16(a, low, b);
            right[pair] = _mm512_permutex2var_epi16(a, high, b);
        }
        transpose(left);
        transpose(right);
        for (int number = 0; number < TILE; number++) {
            _mm512_store_si512(to + (at + number) * 32, left[number]);
            _mm512_store_si512(to + (at + TILE + number) * 32, right[number]);
        }
    }
}

#endif
