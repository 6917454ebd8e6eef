/* Attention of the asks of a batch, in AMX tiles of bfloat16 with float32 sums.

   A unit is a prefix in the arena and the new tokens of all asks that read it, one after another. A work item is a run
   of a unit's tokens and one KV head: the prefix and the tokens' own K and V are packed once, then 16 rows (a row is a
   token and a query head of the KV head's group) at a time go through scores, softmax and values. */
#include <sys/syscall.h>
#include <unistd.h>

#include "packing.h"
#include "shares.h"

enum { FLUSH_TO_ZERO = 0x8040 }; /* of the processor's control word: results and operands below the normal numbers */

/* Asks Linux for the right to use tiles, once in a process; 0 where it is given. */
int request_tiles(void) { return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

/* What an item's tokens may see: the prefix, in `before` columns, then the unit's own tokens `from` .. `stop`. */
typedef struct {
    int64_t before, from, stop;
} Seen;

static Seen seen_of(const Batch *batch, const Item *item)
{
    const int64_t last = batch->last[item->tokens + item->end - 1];
    return (Seen){up_to(item->prefix, KEYS), batch->first[item->tokens + item->begin], last};
}

static int64_t columns_of(const Seen *seen) { return seen->before + up_to(seen->stop - seen->from, KEYS); }

static Scratch cut(char *memory, int64_t columns, int64_t dim)
{
    Scratch scratch = {.keys = (bf16 *)memory};
    scratch.values = scratch.keys + columns * dim;
    scratch.q = scratch.values + columns * dim;
    scratch.shares = scratch.q + TILE * dim;
    scratch.scores = (float *)(scratch.shares + BLOCKS * KEYS * TILE);
    scratch.sums = scratch.scores + 2 * KEYS * TILE;
    return scratch;
}

/* Bytes of scratch memory for items that see at most so many tokens, padded. */
int64_t scratch_bytes(int64_t tokens, int64_t head_dim)
{
    const int64_t short_ones = (2 * tokens + TILE) * head_dim + BLOCKS * KEYS * TILE;
    return short_ones * (int64_t)sizeof(bf16) + (2 * KEYS + head_dim) * TILE * (int64_t)sizeof(float);
}

/* Packs what an item's tokens may see. */
static void pack(const Batch *batch, const Item *item, const Seen *seen, const Scratch *scratch)
{
    const int64_t dim = batch->head_dim, all = columns_of(seen);
    for (int64_t block = 0; block < all; block += KEYS) {
        const bf16 *keys[KEYS] = {NULL}, *values[KEYS] = {NULL};
        for (int64_t i = block; i < block + KEYS; i++) {
            const int64_t token = seen->from + i - seen->before;
            if (i < item->prefix) {
                const int64_t at = batch->slots[item->slots + i] * batch->slot_stride + item->head * dim;
                keys[i - block] = batch->keys + at;
                values[i - block] = batch->values + at;
            } else if (i >= seen->before && token < seen->stop) {
                const int64_t at = batch->rows[item->tokens + token] * batch->stride + item->head * dim;
                keys[i - block] = batch->k + at;
                values[i - block] = batch->v + at;
            }
        }
        pack_down(scratch->keys + block * dim, keys, dim);
        pack_down(scratch->keys + (block + TILE) * dim, keys + TILE, dim);
        pack_turned(scratch->values + block * dim, values, dim);
    }
}

static void pack_queries(const Rows *rows, const Scratch *scratch)
{
    const Batch *batch = rows->batch;
    const bf16 *q[TILE] = {NULL};
    for (int64_t i = 0; i < rows->count; i++) q[i] = batch->q + place_of(rows, i, batch->stride);
    pack_across(scratch->q, q, batch->head_dim);
}

/* The rows' mixed values, over what their shares come to. */
static void write_out(const Rows *rows, const Scratch *scratch, const Progress *progress)
{
    const Batch *batch = rows->batch;
    const __m512 scale = _mm512_div_ps(_mm512_set1_ps(1.0f), progress->total);
    bf16 *out[TILE];
    for (int64_t i = 0; i < rows->count; i++) out[i] = batch->out + place_of(rows, i, batch->out_stride);
    for (int64_t at = 0; at < batch->head_dim; at += 32) {
        const float *sums = scratch->sums + at * TILE;
        __m512i lines[TILE];
        for (int pair = 0; pair < TILE; pair++) {
            const __m512 even = _mm512_mul_ps(_mm512_load_ps(sums + 2 * pair * TILE), scale);
            lines[pair] = paired(even, _mm512_mul_ps(_mm512_load_ps(sums + (2 * pair + 1) * TILE), scale));
        }
        transpose(lines);
        for (int64_t i = 0; i < rows->count; i++) _mm512_storeu_si512(out[i] + at, lines[i]);
    }
}

/* What tiles compute beside a block: the scores of the next one, unless this is the last, and the mixed values of what
   waits. Heads that tiles cannot hold are computed at once. */
static Tiles tiles_beside(const Rows *rows, const Scratch *scratch, Progress *progress, int64_t next, float *scores)
{
    const int64_t dim = rows->batch->head_dim;
    Tiles tiles = {.q = scratch->q, .scores = scores};
    if (next < rows->width) tiles.keys = scratch->keys + block_at(rows, next) * dim;
    if (dim == HELD && progress->count) {
        tiles.values = progress->waiting[0].values;
        tiles.shares = progress->waiting[0].shares;
    }
    if (dim != HELD && tiles.keys != NULL) {
        score(tiles.keys, scratch->q, dim, scores);
        tiles.keys = NULL;
    }
    if (progress->count == BLOCKS) mix_waiting(scratch, progress, dim);
    return tiles;
}

static void attend_rows(const Rows *rows, const Scratch *scratch)
{
    const int64_t dim = rows->batch->head_dim;
    const float factor = rows->batch->factor;
    Progress progress = {.shift = _mm512_setzero_ps(), .total = _mm512_setzero_ps()};
    pack_queries(rows, scratch);
    score(scratch->keys + block_at(rows, 0) * dim, scratch->q, dim, scratch->scores);
    clear_sums();
    for (int64_t column = 0, turn = 0; column < rows->width; column += KEYS, turn = 1 - turn) {
        const float *scores = scratch->scores + turn * KEYS * TILE;
        float *following = scratch->scores + (1 - turn) * KEYS * TILE;
        const Tiles tiles = tiles_beside(rows, scratch, &progress, column + KEYS, following);
        const bf16 *values = scratch->values + block_at(rows, column) * dim;
        __m512i seen;
        if (see(rows, column, &seen))
            share_out(scratch, &progress, scores, seen, 1, factor, dim, values, tiles);
        else
            share_out(scratch, &progress, scores, seen, 0, factor, dim, values, tiles);
    }
    mix_waiting(scratch, &progress, dim);
    if (dim == HELD) store_sums(scratch->sums, 4);
    write_out(rows, scratch, &progress);
}

/* Attention of some items; `memory` is aligned to 64 bytes. */
void attend(const Batch *batch, const Item *items, int64_t count, char *memory)
{
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | FLUSH_TO_ZERO);
    configure_tiles();
    for (int64_t number = 0; number < count; number++) {
        const Item *item = items + number;
        const Seen seen = seen_of(batch, item);
        const Scratch scratch = cut(memory, columns_of(&seen), batch->head_dim);
        pack(batch, item, &seen, &scratch);
        const int64_t end = item->end * batch->group;
        for (int64_t row = item->begin * batch->group; row < end; row += TILE) {
            const int64_t rest = end - row < TILE ? end - row : TILE;
            const Rows rows = rows_at(batch, item, seen.before, seen.from, row, rest);
            attend_rows(&rows, &scratch);
        }
    }
    _tile_release();
    _mm_setcsr(control);
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

/* Copies K and V between slots of the arena: pairs of (from, to). */
void copy(bf16 *keys, bf16 *values, const int64_t *pairs, int64_t count, int64_t slot_stride)
{
    const size_t bytes = slot_stride * sizeof(bf16);
    for (int64_t i = 0; i < count; i++) {
        memcpy(keys + pairs[2 * i + 1] * slot_stride, keys + pairs[2 * i] * slot_stride, bytes);
        memcpy(values + pairs[2 * i + 1] * slot_stride, values + pairs[2 * i] * slot_stride, bytes);
    }
}
