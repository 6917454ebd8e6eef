/* Scores of sixteen rows and blocks of 32 keys, the softmax over them, and the values that it mixes.

   Everything lies on its side, keys or dimensions down and rows across, so that the softmax of a row is a lane of
   vectors: no sum or maximum across a vector is needed. Heads of 64 dimensions, as most have, keep their mixed values
   in tiles 0 to 3, and tiles and vectors compute at the same time; those of others wait in memory. */
#ifndef QUAIL_FRAMES_SHARES_H
#define QUAIL_FRAMES_SHARES_H

#include <math.h>
#include <stddef.h>

#include "rows.h"

enum { BLOCKS = 8, HELD = 64 }; /* blocks of keys whose values are mixed at a time; dimensions that tiles hold */
static const float MOST = 1 << 15; /* what the shares of a block may come to before a shift is raised */

typedef struct {
    bf16 *keys, *values, *q, *shares; /* shares of BLOCKS blocks */
    float *scores, *sums;             /* of two blocks, and [dim, 16 rows] */
} Scratch;

/* A block of keys whose shares are there, but not mixed. */
typedef struct {
    const bf16 *values, *shares;
} Waiting;

/* What sixteen rows have come to. Shares are 2^(factor score - shift): the online softmax of Milakov and Gimelshein
   2018 (arXiv:1805.02867), but a row's shift is about the greatest score of the first block that it sees, and is raised
   only where shares become large. It is a whole number, so that another shift would scale shares by a power of two. */
typedef struct {
    __m512 shift, total;
    __mmask16 begun; /* rows that have seen a key */
    Waiting waiting[BLOCKS];
    int64_t count, mixed; /* blocks that wait, and those that do no longer */
} Progress;

/* What tiles compute among the shares of a block, for heads of 64 dimensions: the scores of the next block of keys, and
   the mixed values of the block before. NULL where there is none. */
typedef struct {
    const bf16 *q, *keys, *values, *shares;
    float *scores;
} Tiles;

static inline void store_scores(float *scores)
{
    _tile_stored(4, scores, 64);
    _tile_stored(5, scores + TILE * TILE, 64);
}

/* Scores [32 keys, 16 rows] of a block of keys in tiles 4 and 5: half of the keys and of 64 dimensions a part. */
INLINE void score_part(const bf16 *keys, const bf16 *q, int part)
{
    if (part == 0) {
        _tile_zero(4);
        _tile_zero(5);
    }
    if (part % 2 == 0) _tile_loadd(7, q + part / 2 * TILE * 32, 64);
    _tile_loadd(6, keys + part % 2 * TILE * HELD + part / 2 * TILE * 32, 64);
    if (part % 2 == 0) _tile_dpbf16ps(4, 6, 7);
    if (part % 2 == 1) _tile_dpbf16ps(5, 6, 7);
}

/* The same for any heads, at once, and stored. */
static inline void score(const bf16 *keys, const bf16 *q, int64_t dim, float *scores)
{
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t at = 0; at < TILE * dim; at += TILE * 32) {
        _tile_loadd(7, q + at, 64);
        _tile_loadd(6, keys + at, 64);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(6, keys + TILE * dim + at, 64);
        _tile_dpbf16ps(5, 6, 7);
    }
    store_scores(scores);
}

/* Tiles 0 to 3 += the values of a block of keys on their sides, times their shares; sixteen dimensions a part. */
INLINE void mix_part(const bf16 *values, const bf16 *shares, int part)
{
    if (part == 0) _tile_loadd(7, shares, 64);
    _tile_loadd(6, values + part * TILE * KEYS, 64);
    if (part == 0) _tile_dpbf16ps(0, 6, 7);
    if (part == 1) _tile_dpbf16ps(1, 6, 7);
    if (part == 2) _tile_dpbf16ps(2, 6, 7);
    if (part == 3) _tile_dpbf16ps(3, 6, 7);
}

/* Part `part` of eight. Scores are stored a while after they are begun: they have to be there by then. */
INLINE void compute_part(const Tiles *tiles, int part)
{
    if (part < 4 && tiles->keys != NULL) score_part(tiles->keys, tiles->q, part);
    if (part == 5 && tiles->keys != NULL) store_scores(tiles->scores);
    if (part >= 4 && tiles->values != NULL) mix_part(tiles->values, tiles->shares, part - 4);
}

static inline void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static inline void load_sums(const float *sums, int64_t tiles)
{
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + TILE * TILE, 64);
    if (tiles <= 2) return;
    _tile_loadd(2, sums + 2 * TILE * TILE, 64);
    _tile_loadd(3, sums + 3 * TILE * TILE, 64);
}

static inline void store_sums(float *sums, int64_t tiles)
{
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE * TILE, 64);
    if (tiles <= 2) return;
    _tile_stored(2, sums + 2 * TILE * TILE, 64);
    _tile_stored(3, sums + 3 * TILE * TILE, 64);
}

/* `tiles` times sixteen dimensions, from `at` on, of all that waits. */
static inline void mix_all(const Progress *progress, int64_t at, int64_t tiles)
{
    for (int64_t number = 0; number < progress->count; number++) {
        const Waiting *block = progress->waiting + number;
        for (int part = 0; part < 4; part++)
            if (part < tiles) mix_part(block->values + at * KEYS, block->shares, part);
    }
}

/* Mixes what waits for it. */
static inline void mix_waiting(const Scratch *scratch, Progress *progress, int64_t dim)
{
    if (dim == HELD) mix_all(progress, 0, 4);
    for (int64_t at = 0; dim != HELD && progress->count && at < dim; at += HELD) {
        const int64_t tiles = dim - at < HELD ? (dim - at) / TILE : 4;
        if (progress->mixed)
            load_sums(scratch->sums + at * TILE, tiles);
        else
            clear_sums();
        mix_all(progress, at, tiles);
        store_sums(scratch->sums + at * TILE, tiles);
    }
    progress->mixed += progress->count;
    progress->count = 0;
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
        const __m512 score = _mm512_load_ps(scores + key * TILE);
        most[key % 2] = _mm512_max_ps(most[key % 2], whole ? score : masked(score, seen, key));
    }
    return _mm512_mul_ps(_mm512_max_ps(most[0], most[1]), _mm512_set1_ps(factor));
}

/* The shift of rows that see a key for the first time. */
INLINE void begin(Progress *progress, const float *scores, __m512i seen, int whole, float factor)
{
    const __m512 most = highest(scores, seen, whole, factor);
    const __mmask16 sees = _mm512_cmp_ps_mask(most, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    progress->shift = _mm512_mask_roundscale_ps(progress->shift, sees & ~progress->begun, most,
                                                _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    progress->begun |= sees;
}

/* Raises shifts by whole numbers: sums and totals times 2^-by. */
static inline void raise_shift(const Scratch *scratch, Progress *progress, __m512 by, int64_t dim)
{
    const __m512 less = _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_sub_ps(_mm512_setzero_ps(), by));
    mix_waiting(scratch, progress, dim); /* it has the old shift */
    if (dim == HELD) store_sums(scratch->sums, 4);
    for (float *sums = scratch->sums; progress->mixed && sums < scratch->sums + dim * TILE; sums += TILE)
        _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), less));
    if (dim == HELD) load_sums(scratch->sums, 4);
    progress->total = _mm512_mul_ps(progress->total, less);
    progress->shift = _mm512_add_ps(progress->shift, by);
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

/* Shares of a block of keys; returns their sums. Below the normal numbers a share is 0: the caller has told the
   processor so, for which such numbers take 15 times as long. */
INLINE __m512 soften(const float *scores, __m512i seen, int whole, float factor, __m512 shift, bf16 *shares,
                     const Tiles *tiles)
{
    const __m512 scale = _mm512_set1_ps(factor);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int key = 0; key < KEYS; key += 2) {
        if (key % 4 == 0) compute_part(tiles, key / 4);
        __m512 x = _mm512_fmsub_ps(_mm512_load_ps(scores + key * TILE), scale, shift);
        __m512 y = _mm512_fmsub_ps(_mm512_load_ps(scores + (key + 1) * TILE), scale, shift);
        x = rough_exp2_16(whole ? x : masked(x, seen, key));
        y = rough_exp2_16(whole ? y : masked(y, seen, key + 1));
        sum = _mm512_add_ps(sum, _mm512_add_ps(x, y));
        _mm512_store_si512(shares + key * TILE, paired(x, y));
    }
    return sum;
}

/* Shares of a block of keys, which then waits. */
INLINE void share_out(const Scratch *scratch, Progress *progress, const float *scores, __m512i seen, int whole,
                      float factor, int64_t dim, const bf16 *values, Tiles tiles)
{
    if (progress->begun != 0xffff) begin(progress, scores, seen, whole, factor);
    bf16 *shares = scratch->shares + (progress->mixed + progress->count) % BLOCKS * KEYS * TILE;
    if (tiles.values != NULL) {
        progress->mixed++;
        progress->count = 0;
    }
    for (;;) {
        const __m512 sum = soften(scores, seen, whole, factor, progress->shift, shares, &tiles);
        const __mmask16 over = _mm512_cmp_ps_mask(sum, _mm512_set1_ps(MOST), _CMP_GT_OQ);
        if (__builtin_expect(!over, 1)) {
            progress->total = _mm512_add_ps(progress->total, sum);
            progress->waiting[progress->count++] = (Waiting){values, shares};
            return;
        }
        const __m512 above = _mm512_sub_ps(highest(scores, seen, whole, factor), progress->shift);
        const __m512 by = _mm512_maskz_roundscale_ps(over, above, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
        raise_shift(scratch, progress, by, dim);
        tiles.keys = tiles.values = NULL; /* they are done */
    }
}

#endif
