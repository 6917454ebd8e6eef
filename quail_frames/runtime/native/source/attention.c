/* Attention of the asks of a batch, in AMX tiles of bfloat16 with float32 sums.

   A unit is a prefix in the arena and the new tokens of all asks that read it, one after another. A work item is a run
   of a unit's tokens and one KV head: the prefix and the tokens' own K and V are packed once, then 32 rows (a row is a
   token and a query head of the KV head's group) at a time go through scores, softmax and values, COLUMNS keys at a
   time with the online softmax of Milakov and Gimelshein 2018 (arXiv:1805.02867). */
#include <math.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tiles.h"

enum { KEYS = 32, COLUMNS = 512 }; /* scores of ROWS x COLUMNS at a time */

typedef struct {
    const bf16 *q, *k, *v;     /* of the batch; a token's heads lie together, tokens `stride` apart */
    const bf16 *keys, *values; /* of the arena; slots `slot_stride` apart */
    bf16 *out;                 /* tokens `out_stride` apart */
    int64_t stride, slot_stride, out_stride, head_dim, group;
    float factor;              /* of a score, in powers of two */
    const int64_t *slots;      /* arena slots of the prefixes */
    const int64_t *rows;       /* batch row of each token of the units */
    const int64_t *first;      /* where the ask of each token begins in its unit */
    const int64_t *last;       /* one past the last token of its unit that it may see */
    const int64_t *tree_first; /* where the tree of its ask begins in its unit; from there on `visible` says what it sees */
    const int64_t *visible_at; /* its line of `visible`, -1 for a token that sees all up to `last` */
    const uint8_t *visible;
} Batch;

typedef struct {
    int64_t slots, prefix, tokens; /* where slots and tokens of the unit begin; tokens of the prefix */
    int64_t begin, end, head;      /* which tokens of the unit, and which KV head */
} Item;

typedef struct {
    bf16 *keys, *values, *q, *shares;
    float *scores, *sums;
    int64_t before, own; /* padded tokens of the prefix, and of the unit's own from `from` on */
    int64_t from;
} Scratch;

static int64_t up_to(int64_t count, int64_t whole) { return (count + whole - 1) / whole * whole; }

/* Asks Linux for the right to use tiles, once in a process; 0 where it is given. */
int request_tiles(void) { return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

static void transpose(__m512i *x)
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

/* Sixteen keys as B tiles: pairs of dimensions down, keys across; NULL stands for zeros. */
static void pack_keys(bf16 *to, const bf16 *const *keys, int64_t head_dim)
{
    for (int64_t at = 0; at < head_dim; at += 32) {
        __m512i lines[16];
        for (int key = 0; key < 16; key++)
            lines[key] = keys[key] == NULL ? _mm512_setzero_si512() : _mm512_loadu_si512(keys[key] + at);
        transpose(lines);
        for (int line = 0; line < 16; line++)
            _mm512_store_si512(to + at * 16 + line * 32, lines[line]);
    }
}

/* Thirty-two values as B tiles: pairs of tokens down, dimensions across. */
static void pack_values(bf16 *to, const bf16 *const *values, int64_t head_dim)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int pair = 0; pair < 16; pair++)
        for (int64_t at = 0; at < head_dim; at += 32) {
            const bf16 *one = values[2 * pair], *other = values[2 * pair + 1];
            const __m512i a = one == NULL ? _mm512_setzero_si512() : _mm512_loadu_si512(one + at);
            const __m512i b = other == NULL ? _mm512_setzero_si512() : _mm512_loadu_si512(other + at);
            bf16 *tiles = to + at * 32 + pair * 32;
            _mm512_store_si512(tiles, _mm512_permutex2var_epi16(a, low, b));
            _mm512_store_si512(tiles + 512, _mm512_permutex2var_epi16(a, high, b));
        }
}

/* Packs what an item's tokens may see: the prefix, then the unit's own tokens from `from` on. */
static void pack(const Batch *batch, const Item *item, const Scratch *scratch, int64_t stop)
{
    const int64_t dim = batch->head_dim, all = scratch->before + scratch->own;
    for (int64_t block = 0; block < all; block += KEYS) {
        const bf16 *keys[KEYS] = {NULL}, *values[KEYS] = {NULL};
        for (int64_t i = 0; i < KEYS; i++) {
            if (block < scratch->before && block + i < item->prefix) {
                const int64_t at = batch->slots[item->slots + block + i] * batch->slot_stride + item->head * dim;
                keys[i] = batch->keys + at;
                values[i] = batch->values + at;
            } else if (block >= scratch->before && scratch->from + block - scratch->before + i < stop) {
                const int64_t token = item->tokens + scratch->from + block - scratch->before + i;
                const int64_t at = batch->rows[token] * batch->stride + item->head * dim;
                keys[i] = batch->k + at;
                values[i] = batch->v + at;
            }
        }
        pack_keys(scratch->keys + block * dim, keys, dim);
        pack_keys(scratch->keys + (block + 16) * dim, keys + 16, dim);
        pack_values(scratch->values + block * dim, values, dim);
    }
}

/* scores [32, width] of q [32, dim] and the keys of `blocks`, 32 each. */
static void score(const Scratch *scratch, const int64_t *blocks, int64_t width, int64_t dim, int both)
{
    const bf16 *q = scratch->q, *lower = q + TILE * dim;
    for (int64_t column = 0; column < width; column += KEYS) {
        const bf16 *keys = scratch->keys + blocks[column / KEYS] * dim;
        float *scores = scratch->scores + column;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t at = 0; at < dim; at += 32) {
            _tile_loadd(4, q + at, dim * 2);
            _tile_loadd(6, keys + at * 16, 64);
            _tile_loadd(7, keys + 16 * dim + at * 16, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (both) {
                _tile_loadd(5, lower + at, dim * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, scores, width * 4);
        _tile_stored(1, scores + TILE, width * 4);
        if (both) {
            _tile_stored(2, scores + TILE * width, width * 4);
            _tile_stored(3, scores + TILE * width + TILE, width * 4);
        }
    }
}

/* The same where heads have 64 dimensions, as most have: q stays in tiles. */
static void score_64(const Scratch *scratch, const int64_t *blocks, int64_t width)
{
    const bf16 *q = scratch->q;
    _tile_loadd(4, q, 128);
    _tile_loadd(5, q + 32, 128);
    _tile_loadd(6, q + TILE * 64, 128);
    _tile_loadd(7, q + TILE * 64 + 32, 128);
    for (int64_t column = 0; column < width; column += TILE) {
        const bf16 *keys = scratch->keys + (blocks[column / KEYS] + column % KEYS) * 64;
        float *scores = scratch->scores + column;
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, keys, 64);
        _tile_loadd(3, keys + 512, 64);
        _tile_dpbf16ps(0, 4, 2);
        _tile_dpbf16ps(1, 6, 2);
        _tile_dpbf16ps(0, 5, 3);
        _tile_dpbf16ps(1, 7, 3);
        _tile_stored(0, scores, width * 4);
        _tile_stored(1, scores + TILE * width, width * 4);
    }
}

/* sums [32, dim] += shares [32, width] times the values of `blocks`, 32 tokens each. */
static void mix(const Scratch *scratch, const int64_t *blocks, int64_t width, int64_t dim, int both)
{
    for (int64_t at = 0; at < dim; at += 32) {
        float *sums = scratch->sums + at;
        _tile_loadd(0, sums, dim * 4);
        _tile_loadd(1, sums + TILE, dim * 4);
        _tile_loadd(2, sums + TILE * dim, dim * 4);
        _tile_loadd(3, sums + TILE * dim + TILE, dim * 4);
        for (int64_t column = 0; column < width; column += KEYS) {
            const bf16 *tiles = scratch->values + blocks[column / KEYS] * dim + at * 32;
            _tile_loadd(4, scratch->shares + column, width * 2);
            _tile_loadd(6, tiles, 64);
            _tile_loadd(7, tiles + 512, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (both) {
                _tile_loadd(5, scratch->shares + TILE * width + column, width * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, sums, dim * 4);
        _tile_stored(1, sums + TILE, dim * 4);
        _tile_stored(2, sums + TILE * dim, dim * 4);
        _tile_stored(3, sums + TILE * dim + TILE, dim * 4);
    }
}

/* Columns begin .. end of a row's scores that lie in first .. stop become minus infinity. */
static void hide(float *scores, int64_t begin, int64_t end, int64_t first, int64_t stop)
{
    for (int64_t column = begin > first ? begin : first; column < (end < stop ? end : stop); column++)
        scores[column - first] = -INFINITY;
}

/* Hides of columns first .. stop what a token does not see: padding behind the prefix, other asks, what comes later,
   other branches of its tree. Column `own` + c is token c of the unit. */
static void hide_unseen(const Batch *batch, const Item *item, float *scores, int64_t token, int64_t before, int64_t own,
                        int64_t first, int64_t stop)
{
    const int64_t at = item->tokens + token, tree = batch->tree_first[at], last = batch->last[at];
    hide(scores, item->prefix, before, first, stop);
    hide(scores, before, own + batch->first[at], first, stop);
    hide(scores, own + last, stop, first, stop);
    if (batch->visible_at[at] >= 0)
        for (int64_t c = tree; c < last; c++)
            if (!batch->visible[batch->visible_at[at] + c - tree])
                hide(scores, own + c, own + c + 1, first, stop);
}

typedef struct {
    float highest, total; /* of the scores so far, and of 2^(factor (score - highest)) */
} Softmax;

/* Shares 2^(factor (score - highest)) of a row's next scores, as bfloat16; its sums so far are brought to the new
   highest. */
static void soften(Softmax *so_far, const float *scores, bf16 *shares, int64_t width, float factor, float *sums,
                   int64_t dim)
{
    __m512 highest = _mm512_set1_ps(so_far->highest), total = _mm512_setzero_ps();
    for (int64_t column = 0; column < width; column += 16)
        highest = _mm512_max_ps(highest, _mm512_loadu_ps(scores + column));
    const float most = _mm512_reduce_max_ps(highest);
    const float above = most == -INFINITY ? 0 : most; /* nothing seen yet: all shares are 0 */
    const __m512 scale = _mm512_set1_ps(factor), shift = _mm512_set1_ps(factor * above);
    for (int64_t column = 0; column < width; column += KEYS) {
        const __m512 low = short_exp2_16(_mm512_fmsub_ps(_mm512_loadu_ps(scores + column), scale, shift));
        const __m512 high = short_exp2_16(_mm512_fmsub_ps(_mm512_loadu_ps(scores + column + 16), scale, shift));
        total = _mm512_add_ps(total, _mm512_add_ps(low, high));
        store32(shares + column, low, high);
    }
    if (most > so_far->highest) {
        const __m512 less = exp2_16(_mm512_set1_ps(factor * (so_far->highest - most)));
        for (int64_t at = 0; at < dim; at += 16)
            _mm512_storeu_ps(sums + at, _mm512_mul_ps(_mm512_loadu_ps(sums + at), less));
        so_far->total *= _mm512_cvtss_f32(less);
        so_far->highest = most;
    }
    so_far->total += _mm512_reduce_add_ps(total);
}

/* Attention of ROWS rows or fewer, from `row` of the unit on. */
static void attend_rows(const Batch *batch, const Item *item, const Scratch *scratch, int64_t row, int64_t count)
{
    const int64_t dim = batch->head_dim, group = batch->group, head = item->head * group, before = scratch->before;
    const int64_t final = item->tokens + (row + count - 1) / group;
    const int64_t skip = (batch->first[item->tokens + row / group] - scratch->from) / KEYS * KEYS;
    const int64_t own = before - scratch->from - skip; /* column of the unit's first token */
    const int64_t width = before + up_to(batch->last[final] - scratch->from - skip, KEYS);
    const int both = count > TILE;
    Softmax softmax[ROWS];
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = batch->rows[item->tokens + (row + i) / group];
        memcpy(scratch->q + i * dim, batch->q + token * batch->stride + (head + (row + i) % group) * dim, dim * 2);
        softmax[i] = (Softmax){-INFINITY, 0};
    }
    memset(scratch->sums, 0, ROWS * dim * sizeof(float));
    for (int64_t first = 0; first < width; first += COLUMNS) {
        const int64_t stop = first + COLUMNS < width ? first + COLUMNS : width, columns = stop - first;
        int64_t blocks[COLUMNS / KEYS];
        for (int64_t column = first; column < stop; column += KEYS)
            blocks[(column - first) / KEYS] = column < before ? column : column + skip;
        if (dim == 64 && both)
            score_64(scratch, blocks, columns);
        else
            score(scratch, blocks, columns, dim, both);
        for (int64_t i = 0; i < count; i++) {
            float *scores = scratch->scores + i * columns;
            hide_unseen(batch, item, scores, (row + i) / group, before, own, first, stop);
            soften(softmax + i, scores, scratch->shares + i * columns, columns, batch->factor, scratch->sums + i * dim, dim);
        }
        memset(scratch->shares + count * columns, 0, (ROWS - count) * columns * sizeof(bf16));
        mix(scratch, blocks, columns, dim, both);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = batch->rows[item->tokens + (row + i) / group];
        bf16 *out = batch->out + token * batch->out_stride + (head + (row + i) % group) * dim;
        const __m512 scale = _mm512_set1_ps(1.0f / softmax[i].total);
        for (int64_t at = 0; at < dim; at += 16)
            store16(out + at, _mm512_mul_ps(_mm512_loadu_ps(scratch->sums + i * dim + at), scale));
    }
}

static Scratch cut(char *memory, const Batch *batch, const Item *item, int64_t stop)
{
    Scratch scratch;
    scratch.from = batch->first[item->tokens + item->begin];
    scratch.before = up_to(item->prefix, KEYS);
    scratch.own = up_to(stop - scratch.from, KEYS);
    const int64_t dim = batch->head_dim, all = scratch.before + scratch.own;
    scratch.keys = (bf16 *)memory;
    scratch.values = scratch.keys + all * dim;
    scratch.q = scratch.values + all * dim;
    scratch.shares = scratch.q + ROWS * dim;
    scratch.scores = (float *)(scratch.shares + ROWS * COLUMNS);
    scratch.sums = scratch.scores + ROWS * COLUMNS;
    return scratch;
}

/* Bytes of scratch memory for items that see at most so many tokens, padded. */
int64_t scratch_bytes(int64_t tokens, int64_t head_dim)
{
    return tokens * head_dim * 4 + ROWS * head_dim * 6 + ROWS * COLUMNS * 6;
}

/* Attention of some items; `memory` is aligned to 64 bytes. */
void attend(const Batch *batch, const Item *items, int64_t count, char *memory)
{
    configure_tiles();
    for (int64_t number = 0; number < count; number++) {
        const Item *item = items + number;
        const int64_t stop = batch->last[item->tokens + item->end - 1];
        const Scratch scratch = cut(memory, batch, item, stop);
        pack(batch, item, &scratch, stop);
        memset(scratch.q, 0, ROWS * batch->head_dim * 2);
        const int64_t rows = item->end * batch->group;
        for (int64_t row = item->begin * batch->group; row < rows; row += ROWS)
            attend_rows(batch, item, &scratch, row, row + ROWS < rows ? ROWS : rows - row);
    }
    _tile_release();
}

/* Writes the K and V of some rows of the batch to their slots of the arena. */
void keep(const Batch *batch, bf16 *keys, bf16 *values, const int64_t *rows, const int64_t *slots, int64_t count)
{
    const size_t bytes = batch->slot_stride * sizeof(bf16);
    for (int64_t i = 0; i < count; i++) {
        memcpy(keys + slots[i] * batch->slot_stride, batch->k + rows[i] * batch->stride, bytes);
        memcpy(values + slots[i] * batch->slot_stride, batch->v + rows[i] * batch->stride, bytes);
    }
}
