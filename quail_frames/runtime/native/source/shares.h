/* Scores of 32 rows and blocks of 32 keys, the softmax over them, and the values that it mixes.

   Everything lies on its side, keys or dimensions down and rows across, so that the softmax of a row is a lane of
   vectors: no sum or maximum across a vector is needed. */
#ifndef QUAIL_FRAMES_SHARES_H
#define QUAIL_FRAMES_SHARES_H

#include <math.h>
#include <stddef.h>

#include "rows.h"

enum { BLOCKS = 8 }; /* blocks of keys whose values are mixed at a time */
static const float MOST = 1 << 15; /* what the shares of a block may come to before a shift is raised */

typedef struct {
    bf16 *keys, *values, *q, *shares;
    float *scores, *sums; /* of two blocks, and [dim, 32 rows] */
} Scratch;

/* What 32 rows have come to. Shares are 2^(factor score - shift): the online softmax of Milakov and Gimelshein 2018
   (arXiv:1805.02867), but a row's shift is about the greatest score of the first block that it sees, and is raised
   only where shares become large. It is a whole number, so that another shift would scale shares by a power of two. */
typedef struct {
    __m512 shift[2], total[2];
    __mmask16 begun[2];              /* rows that have seen a key */
    int64_t blocks[BLOCKS], waiting; /* blocks whose shares are there, but not mixed */
    int mixed;                       /* whether the sums hold anything yet */
} Progress;

/* A block of keys whose scores are computed among the shares of the block before; NULL where there is none. */
typedef struct {
    const bf16 *keys;
    float *scores;
} Ahead;

/* Puts the queries of 64 dimensions, as most heads have, into tiles, where they stay for `score_64`. */
static inline void hold(const bf16 *q)
{
    _tile_loadd(4, q, 64);
    _tile_loadd(5, q + TILE * 32, 64);
    _tile_loadd(6, q + TILE * 64, 64);
    _tile_loadd(7, q + TILE * 96, 64);
}

/* Scores [32 keys, 32 rows] of a block of keys and the queries that are held, in four parts. */
INLINE void score_64(const bf16 *keys, float *scores, int part)
{
    keys += part / 2 * TILE * 64;
    scores += part / 2 * TILE * ROWS;
    if (part % 2 == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_stream_loadd(2, keys, 64);
        _tile_dpbf16ps(0, 2, 4);
        _tile_dpbf16ps(1, 2, 6);
    } else {
        _tile_stream_loadd(3, keys + TILE * 32, 64);
        _tile_dpbf16ps(0, 3, 5);
        _tile_dpbf16ps(1, 3, 7);
        _tile_stored(0, scores, ROWS * 4);
        _tile_stored(1, scores + TILE, ROWS * 4);
    }
}

/* The same for other heads. */
static inline void score(const bf16 *keys, const bf16 *q, int64_t dim, float *scores)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t at = 0; at < TILE * dim; at += TILE * 32) {
        _tile_stream_loadd(4, keys + at, 64);
        _tile_loadd(6, q + at, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, q + TILE * dim + at, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(5, keys + TILE * dim + at, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scores, ROWS * 4);
    _tile_stored(1, scores + TILE, ROWS * 4);
    _tile_stored(2, scores + TILE * ROWS, ROWS * 4);
    _tile_stored(3, scores + TILE * ROWS + TILE, ROWS * 4);
}

/* sums [dim, 32 rows] += the values of some blocks of keys on their sides, times their shares. */
static inline void mix(const Scratch *scratch, const int64_t *blocks, int64_t count, int64_t dim, int first)
{
    for (int64_t at = 0; at < dim; at += 32) {
        float *sums = scratch->sums + at * ROWS;
        if (first) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        } else {
            _tile_loadd(0, sums, ROWS * 4);
            _tile_loadd(1, sums + TILE, ROWS * 4);
            _tile_loadd(2, sums + TILE * ROWS, ROWS * 4);
            _tile_loadd(3, sums + TILE * ROWS + TILE, ROWS * 4);
        }
        for (int64_t number = 0; number < count; number++) {
            const bf16 *values = scratch->values + blocks[number] * dim + at * KEYS;
            const bf16 *shares = scratch->shares + number * KEYS * ROWS;
            _tile_stream_loadd(4, values, 64);
            _tile_loadd(6, shares, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, shares + KEYS * TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_stream_loadd(5, values + TILE * KEYS, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, sums, ROWS * 4);
        _tile_stored(1, sums + TILE, ROWS * 4);
        _tile_stored(2, sums + TILE * ROWS, ROWS * 4);
        _tile_stored(3, sums + TILE * ROWS + TILE, ROWS * 4);
    }
}

static inline void mix_waiting(const Scratch *scratch, Progress *progress, int64_t dim)
{
    if (!progress->waiting) return;
    mix(scratch, progress->blocks, progress->waiting, dim, !progress->mixed);
    progress->waiting = 0;
    progress->mixed = 1;
    if (dim == 64) hold(scratch->q);
}

/* Minus infinity for the rows that do not see the key. */
INLINE __m512 masked(__m512 x, __m512i seen, int key)
{
    const __mmask16 own = _mm512_test_epi32_mask(seen, _mm512_set1_epi32((int)(1u << key)));
    return _mm512_mask_blend_ps(own, _mm512_set1_ps(-INFINITY), x);
}

/* The greatest of the scores that the rows see, in powers of two. */
INLINE __m512 highest(const float *scores, __m512i seen, int whole, float factor)
{
    __m512 most[2] = {_mm512_set1_ps(-INFINITY), _mm512_set1_ps(-INFINITY)};
    for (int key = 0; key < KEYS; key++) {
        const __m512 score = _mm512_load_ps(scores + key * ROWS);
        most[key % 2] = _mm512_max_ps(most[key % 2], whole ? score : masked(score, seen, key));
    }
    return _mm512_mul_ps(_mm512_max_ps(most[0], most[1]), _mm512_set1_ps(factor));
}

/* The shift of rows that see a key for the first time. */
INLINE void begin(Progress *progress, int half, const float *scores, __m512i seen, int whole, float factor)
{
    const __m512 most = highest(scores, seen, whole, factor);
    const __mmask16 sees = _mm512_cmp_ps_mask(most, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    progress->shift[half] = _mm512_mask_roundscale_ps(progress->shift[half], sees & ~progress->begun[half], most,
                                                      _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    progress->begun[half] |= sees;
}

/* Raises shifts by whole numbers: sums and totals times 2^-by. */
static inline void raise_shift(const Scratch *scratch, Progress *progress, int half, __m512 by, int64_t dim)
{
    const __m512 less = _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_sub_ps(_mm512_setzero_ps(), by));
    for (int64_t at = 0; progress->mixed && at < dim; at++) {
        float *sums = scratch->sums + at * ROWS + half * TILE;
        _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), less));
    }
    progress->total[half] = _mm512_mul_ps(progress->total[half], less);
    progress->shift[half] = _mm512_add_ps(progress->shift[half], by);
}

/* 2^x to 8e-5, for what a bfloat16 will hold. */
INLINE __m512 rough_exp2_16(__m512 x)
{
    const __m512 rest = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(7.802445491e-2f), rest, _mm512_set1_ps(2.260672519e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(6.958335073e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(9.999252201e-1f));
    return _mm512_scalef_ps(sum, x);
}

/* Shares of a block of keys for one half of the rows; returns their sums. Below the normal numbers a share is 0: the
   caller has told the processor so, for which such numbers take 15 times as long. */
INLINE __m512 soften(const float *scores, __m512i seen, int whole, float factor, __m512 shift, bf16 *shares,
                     Ahead ahead)
{
    const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512 scale = _mm512_set1_ps(factor);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int key = 0; key < KEYS; key += 2) {
        if (ahead.keys != NULL && key % 8 == 0) score_64(ahead.keys, ahead.scores, key / 8);
        __m512 x = _mm512_fmsub_ps(_mm512_load_ps(scores + key * ROWS), scale, shift);
        __m512 y = _mm512_fmsub_ps(_mm512_load_ps(scores + (key + 1) * ROWS), scale, shift);
        x = rough_exp2_16(whole ? x : masked(x, seen, key));
        y = rough_exp2_16(whole ? y : masked(y, seen, key + 1));
        sum = _mm512_add_ps(sum, _mm512_add_ps(x, y));
        _mm512_store_si512(shares + key * TILE, _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(y, x)));
    }
    return sum;
}

/* Shares of a block of keys for one half of the rows, as the next that wait. */
INLINE void share_out(const Scratch *scratch, Progress *progress, int half, const float *scores, __m512i seen,
                      int whole, float factor, int64_t dim, Ahead ahead)
{
    scores += half * TILE;
    if (progress->begun[half] != 0xffff) begin(progress, half, scores, seen, whole, factor);
    for (;; ahead.keys = NULL) {
        bf16 *block = scratch->shares + progress->waiting * KEYS * ROWS, *own = block + half * KEYS * TILE;
        const __m512 sum = soften(scores, seen, whole, factor, progress->shift[half], own, ahead);
        const __mmask16 over = _mm512_cmp_ps_mask(sum, _mm512_set1_ps(MOST), _CMP_GT_OQ);
        if (__builtin_expect(!over, 1)) {
            progress->total[half] = _mm512_add_ps(progress->total[half], sum);
            return;
        }
        mix_waiting(scratch, progress, dim); /* what waits has the old shift */
        if (half && block != scratch->shares) memcpy(scratch->shares, block, KEYS * TILE * sizeof(bf16)); /* half 0 */
        const __m512 above = _mm512_sub_ps(highest(scores, seen, whole, factor), progress->shift[half]);
        raise_shift(scratch, progress, half,
                    _mm512_maskz_roundscale_ps(over, above, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC), dim);
    }
}

#endif
