/* What a batch's attention is about: its units, and which keys each row sees. */
#ifndef QUAIL_FRAMES_ROWS_H
#define QUAIL_FRAMES_ROWS_H

#include "tiles.h"

enum { KEYS = 32 }; /* keys of a block */

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
    const int64_t *tree_first; /* where the tree of its ask begins in its unit: what it sees of that is `visible` */
    const int64_t *visible_at; /* its line of `visible`, -1 for a token that sees all up to `last` */
    const uint8_t *visible;
} Batch;

typedef struct {
    int64_t slots, prefix, tokens; /* where slots and tokens of the unit begin; tokens of the prefix */
    int64_t begin, end, head;      /* which tokens of the unit, and which KV head */
} Item;

static inline int64_t up_to(int64_t count, int64_t whole) { return (count + whole - 1) / whole * whole; }

/* Sixteen rows or fewer, from `row` of the unit on, and which columns of keys each sees: of the prefix all, of the
   unit its ask up to itself. Column `own` + c is token c of the unit; `skip` tokens of the unit, which none of the rows
   sees, have no column. */
typedef struct {
    const Batch *batch;
    const Item *item;
    int64_t count, width, before, skip, own; /* `width` columns, of the prefix those up to `before` */
    int64_t token[TILE], head[TILE];         /* of the batch's units, and of the batch's query heads */
    int32_t first[TILE], last[TILE], in_tree[TILE];
    int any_tree, from_all, to_all; /* whether a row is in a tree; own columns that all rows see, but for trees */
} Rows;

/* Where a row's head begins in q or in the output, whose tokens are `stride` apart. */
static inline int64_t place_of(const Rows *rows, int64_t i, int64_t stride)
{
    return rows->batch->rows[rows->token[i]] * stride + rows->head[i] * rows->batch->head_dim;
}

/* `from` is the first token of the unit that its item packs, behind `before` columns of the prefix. */
static inline Rows rows_at(const Batch *batch, const Item *item, int64_t before, int64_t from, int64_t row,
                           int64_t count)
{
    Rows rows = {.batch = batch, .item = item, .count = count, .before = before, .to_all = INT32_MAX};
    int64_t token = item->tokens + row / batch->group, head = row % batch->group;
    rows.skip = (batch->first[token] - from) / KEYS * KEYS;
    rows.own = before - from - rows.skip;
    for (int64_t i = 0; i < count; i++) {
        rows.token[i] = token;
        rows.head[i] = item->head * batch->group + head;
        rows.first[i] = (int32_t)(rows.own + batch->first[token]);
        rows.last[i] = (int32_t)(rows.own + batch->last[token]);
        rows.in_tree[i] = batch->visible_at[token] >= 0;
        rows.any_tree |= rows.in_tree[i];
        if (rows.first[i] > rows.from_all) rows.from_all = rows.first[i];
        if (rows.last[i] < rows.to_all) rows.to_all = rows.last[i];
        if (++head == batch->group) {
            head = 0;
            token++;
        }
    }
    rows.width = up_to(rows.last[count - 1], KEYS);
    return rows;
}

/* Where the packed block of a column begins. */
static inline int64_t block_at(const Rows *rows, int64_t column)
{
    return column < rows->before ? column : column + rows->skip;
}

/* Bits of the columns `begin` .. `begin` + 32 that lie in first .. last, for 16 rows. */
static inline __m512i bits(const int32_t *first, const int32_t *last, int64_t begin)
{
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1), from = _mm512_set1_epi32((int32_t)begin);
    const __m512i low = _mm512_max_epi32(_mm512_sub_epi32(_mm512_loadu_si512(first), from), zero);
    const __m512i high = _mm512_max_epi32(_mm512_sub_epi32(_mm512_loadu_si512(last), from), zero);
    const __m512i below_low = _mm512_sub_epi32(_mm512_sllv_epi32(one, low), one); /* a shift by 32 or more gives 0 */
    return _mm512_andnot_si512(below_low, _mm512_sub_epi32(_mm512_sllv_epi32(one, high), one));
}

/* Without the tokens of other branches of the row's tree. */
static inline uint32_t in_branch(const Rows *rows, int64_t i, int64_t begin, uint32_t seen)
{
    const Batch *batch = rows->batch;
    const int64_t at = rows->token[i], tree = rows->own + batch->tree_first[at];
    const uint8_t *visible = batch->visible + batch->visible_at[at];
    for (uint32_t left = seen; left; left &= left - 1) {
        const int64_t bit = __builtin_ctz(left), column = begin + bit;
        if (column >= tree && !visible[column - tree]) seen &= ~(1u << bit);
    }
    return seen;
}

/* Which columns of the block from `begin` on the rows see, a bit each. Returns whether all see all. */
static inline int see(const Rows *rows, int64_t begin, __m512i *seen)
{
    if (begin < rows->before) {
        const int64_t count = rows->item->prefix - begin;
        *seen = _mm512_set1_epi32(count < KEYS ? (int32_t)((1u << count) - 1) : -1);
        return count >= KEYS;
    }
    if (!rows->any_tree && rows->from_all <= begin && begin + KEYS <= rows->to_all) {
        *seen = _mm512_set1_epi32(-1);
        return 1;
    }
    *seen = bits(rows->first, rows->last, begin);
    if (!rows->any_tree) return 0;
    uint32_t found[TILE] __attribute__((aligned(64)));
    _mm512_store_si512(found, *seen);
    for (int64_t i = 0; i < rows->count; i++)
        if (rows->in_tree[i]) found[i] = in_branch(rows, i, begin, found[i]);
    *seen = _mm512_load_si512(found);
    return 0;
}

#endif
