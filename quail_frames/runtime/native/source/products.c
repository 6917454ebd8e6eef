/* Products of a decoder layer in AMX tiles, with the elementwise groups between them in their epilogues.

   Rows lie packed (packed_rows.h). Weights [outputs, inputs] lie in panels of 16 outputs, and in a panel one tile for
   each step: 16 pairs of inputs by 16 outputs. Two panels stay in the first-level cache while the blocks of rows stream
   past them, for at most MOST_STEPS steps; sums over more inputs wait in float32. What a block's results go through is
   computed among the tile instructions of the block after it, which leave the vector units idle.

   Results are rounded once, at the end of an epilogue: the eager forms round between its steps too. All widths are whole numbers of 32. */
#include <stddef.h>

#include "packed_rows.h"

enum { MOST_STEPS = 18, LINE = 32 }; /* LINE: numbers of bfloat16 in 64 bytes */

/* Weights of a layer and its widths; biases may be NULL. */
typedef struct {
    const bf16 *attention_norm, *qkv, *qkv_bias, *output, *output_bias;
    const bf16 *mlp_norm, *gate_up, *gate_up_bias, *down, *down_bias;
    int64_t hidden, queries, qkv_width, inner;
    int64_t turned, half; /* outputs of qkv that RoPE turns, and half of a head's */
    float eps;
} Layer;

/* What becomes of results: they are rows, or are added to rows, or are packed rows of silu(left) * right, or RoPE turns
   them. Left and right are sixteen outputs each: of neighbours, of gates and ups, of both halves of a head. */
typedef enum { STORE, ADD, GATED, TURNED } Kind;

/* Four results of 16 by 16: rows of the block by outputs of the panels, as 0 and 1 above, 2 and 3 below. */
typedef float Block[4][TILE][TILE];

typedef struct {
    const bf16 *packed, *weights, *bias;
    bf16 *out;
    Block *sums; /* of each block of rows */
    int64_t rows, inputs, outputs, stride;
    const float *cos, *sin; /* [rows, half] */
    int64_t half;
} Product;

typedef struct {
    int64_t left, right;
} Outputs;

typedef struct {
    const bf16 *left, *right;
    int64_t steps;
} Panels;

/* A block whose results wait for their epilogue; `next` of its `count` rows is the first that is not done. */
typedef struct {
    const float *block;
    bf16 *out;
    int64_t stride, apart, next, count;
    __m512 left_bias, right_bias;
    const float *cos, *sin;
} Pending;

static inline __m512 bias_at(const bf16 *bias, int64_t at) { return bias ? load16(bias + at) : _mm512_setzero_ps(); }

INLINE __m512 silu_times(__m512 gate, __m512 up)
{
    const __m512 one = _mm512_set1_ps(1.0f), most = _mm512_set1_ps(126.0f);
    const __m512 power = exp2_16(_mm512_min_ps(_mm512_mul_ps(gate, _mm512_set1_ps(-LOG2_E)), most));
    const __m512 below = _mm512_add_ps(one, power), rough = _mm512_rcp14_ps(below);
    /* A step of Newton's instead of a division, which takes four times as long. */
    const __m512 inverse = _mm512_fmadd_ps(rough, _mm512_fnmadd_ps(below, rough, one), rough);
    return _mm512_mul_ps(_mm512_mul_ps(gate, inverse), up);
}

INLINE void finish_row(Kind kind, Pending *pending)
{
    const int64_t row = pending->next++;
    const float *results = pending->block + (row / TILE * 2 * TILE + row % TILE) * TILE;
    bf16 *out = pending->out + row * pending->stride;
    __m512 left = _mm512_add_ps(_mm512_load_ps(results), pending->left_bias);
    __m512 right = _mm512_add_ps(_mm512_load_ps(results + TILE * TILE), pending->right_bias);
    if (kind == GATED) {
        store16(out, silu_times(left, right));
    } else if (kind == TURNED) {
        const __m512 cos = _mm512_loadu_ps(pending->cos + row * pending->apart);
        const __m512 sin = _mm512_loadu_ps(pending->sin + row * pending->apart);
        store16(out, _mm512_fnmadd_ps(right, sin, _mm512_mul_ps(left, cos)));
        store16(out + pending->apart, _mm512_fmadd_ps(left, sin, _mm512_mul_ps(right, cos)));
    } else if (kind == ADD) {
        store32(out, _mm512_add_ps(left, load16(out)), _mm512_add_ps(right, load16(out + TILE)));
    } else {
        store32(out, left, right);
    }
}

INLINE void finish_rows(Kind kind, Pending *pending, int64_t rows)
{
    for (int64_t number = 0; number < rows && pending->next < pending->count; number++) finish_row(kind, pending);
}

/* out = before, unless it is NULL, plus products of a block of rows and two panels. Meanwhile the block before goes
   through its epilogue, all of it before anything is stored to `out`; and at every step `lines` of each of the panels
   that come next are fetched into the second-level cache. */
INLINE void multiply(Kind kind, const bf16 *rows, Panels panels, const Block *before, Block *out, Pending *pending,
                     Panels next, int64_t lines)
{
    const int64_t rows_a_step = (ROWS + panels.steps - 1) / panels.steps;
    if (before == NULL) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, (*before)[0], 64);
        _tile_loadd(1, (*before)[1], 64);
        _tile_loadd(2, (*before)[2], 64);
        _tile_loadd(3, (*before)[3], 64);
    }
    for (int64_t step = 0; step < panels.steps; step++) {
        /* The hint keeps rows from driving the panels out of the first-level cache: 1.4 times as fast. */
        _tile_stream_loadd(4, rows, 64);
        _tile_loadd(6, panels.left, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panels.right, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(5, rows + TILE * STEP, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (int64_t line = 0; line < lines; line++) {
            _mm_prefetch((const char *)next.left, _MM_HINT_T1);
            _mm_prefetch((const char *)next.right, _MM_HINT_T1);
            next.left += LINE;
            next.right += LINE;
        }
        finish_rows(kind, pending, rows_a_step);
        rows += ROWS * STEP;
        panels.left += TILE * STEP;
        panels.right += TILE * STEP;
    }
    _tile_stored(0, (*out)[0], 64);
    _tile_stored(1, (*out)[1], 64);
    _tile_stored(2, (*out)[2], 64);
    _tile_stored(3, (*out)[3], 64);
}

/* Where a stretch of the inputs of `stretches` begins, in steps. */
static inline int64_t step_at(const Product *product, int64_t stretch, int64_t stretches)
{
    return product->inputs / STEP * stretch / stretches;
}

INLINE Outputs outputs_at(Kind kind, const Product *product, int64_t pair)
{
    if (kind == GATED) return (Outputs){pair * TILE, product->outputs / 2 + pair * TILE};
    if (kind != TURNED) return (Outputs){pair * 2 * TILE, pair * 2 * TILE + TILE};
    const int64_t pairs = product->half / TILE, left = pair / pairs * 2 * product->half + pair % pairs * TILE;
    return (Outputs){left, left + product->half};
}

/* The panels of a pair's outputs in a stretch of the inputs. */
INLINE Panels panels_at(const Product *product, Outputs outputs, int64_t stretch, int64_t stretches)
{
    const int64_t from = step_at(product, stretch, stretches), to = step_at(product, stretch + 1, stretches);
    const bf16 *weights = product->weights + from * TILE * STEP;
    return (Panels){weights + outputs.left * product->inputs, weights + outputs.right * product->inputs, to - from};
}

INLINE Pending pending_at(Kind kind, const Product *product, Outputs outputs, int64_t begin, const Block *results)
{
    const int64_t rest = product->rows - begin, at = outputs.left;
    const int64_t place = kind == GATED ? at / STEP * ROWS * STEP + at % STEP : at;
    Pending pending = {
        .block = &(*results)[0][0][0],
        .out = product->out + begin * (kind == GATED ? product->outputs / 2 : product->stride) + place,
        .stride = kind == GATED ? STEP : product->stride,
        .apart = product->half,
        .count = kind == GATED || rest > ROWS ? ROWS : rest,
        .left_bias = bias_at(product->bias, outputs.left),
        .right_bias = bias_at(product->bias, outputs.right),
    };
    if (kind == TURNED) {
        pending.cos = product->cos + begin * product->half + at % (2 * product->half);
        pending.sin = product->sin + begin * product->half + at % (2 * product->half);
    }
    return pending;
}

INLINE void compute(Kind kind, Product product)
{
    const int64_t stretches = (product.inputs / STEP + MOST_STEPS - 1) / MOST_STEPS, pairs = product.outputs / STEP;
    const int64_t blocks = blocks_of(product.rows), lines = blocks ? (TILE + blocks - 1) / blocks : 0;
    Block results __attribute__((aligned(64)));
    Pending pending = {.count = 0};
    for (int64_t pair = 0; pair < pairs; pair++)
        for (int64_t stretch = 0; stretch < stretches; stretch++) {
            const int last = stretch + 1 == stretches;
            const int64_t from = step_at(&product, stretch, stretches);
            const Outputs outputs = outputs_at(kind, &product, pair), then = outputs_at(kind, &product, pair + last);
            const Panels panels = panels_at(&product, outputs, stretch, stretches);
            Panels next = panels_at(&product, then, last ? 0 : stretch + 1, stretches);
            for (int64_t block = 0; block < blocks; block++) {
                const bf16 *rows = product.packed + block * ROWS * product.inputs + from * ROWS * STEP;
                Block *sums = product.sums + block;
                multiply(kind, rows, panels, stretch ? sums : NULL, last ? &results : sums, &pending, next, lines);
                pending.count = 0;
                if (last) pending = pending_at(kind, &product, outputs, block * ROWS, &results);
                next.left += panels.steps * lines * LINE;
                next.right += panels.steps * lines * LINE;
            }
        }
    finish_rows(kind, &pending, ROWS);
}

static void store(Product product) { compute(STORE, product); }
static void add(Product product) { compute(ADD, product); }
static void gate(Product product) { compute(GATED, product); }
static void turn(Product product) { compute(TURNED, product); }

/* Bytes that the functions below need in `scratch`, aligned to 64, for rows of so many numbers in all their forms. */
int64_t product_scratch_bytes(int64_t rows, int64_t numbers)
{
    return blocks_of(rows) * (ROWS * numbers * (int64_t)sizeof(bf16) + (int64_t)sizeof(Block));
}

/* out [rows, outputs] = x [rows, inputs] times weights, plus bias unless it is NULL. */
void product(const bf16 *x, const bf16 *weights, const bf16 *bias, bf16 *out, int64_t rows, int64_t inputs,
             int64_t outputs, void *scratch)
{
    Block *sums = scratch;
    bf16 *packed = (bf16 *)(sums + blocks_of(rows));
    configure_tiles();
    pack(x, rows, inputs, packed);
    store((Product){packed, weights, bias, out, sums, rows, inputs, outputs, .stride = outputs});
    _tile_release();
}

/* qkv [rows, qkv_width] of a layer for residual [rows, hidden], with RoPE unless cos [rows, half] is NULL. */
void open_layer(const Layer *layer, const bf16 *residual, const float *cos, const float *sin, bf16 *qkv, int64_t rows,
                void *scratch)
{
    const int64_t hidden = layer->hidden, turned = cos == NULL ? 0 : layer->turned, width = layer->qkv_width;
    Block *sums = scratch;
    bf16 *x = (bf16 *)(sums + blocks_of(rows));
    configure_tiles();
    pack_norm(residual, layer->attention_norm, layer->eps, rows, hidden, x);
    turn((Product){x, layer->qkv, layer->qkv_bias, qkv, sums, rows, hidden, turned, width, cos, sin, layer->half});
    store((Product){x, layer->qkv + turned * hidden, layer->qkv_bias == NULL ? NULL : layer->qkv_bias + turned,
                    qkv + turned, sums, rows, hidden, width - turned, .stride = width});
    _tile_release();
}

/* residual [rows, hidden] += a layer whose heads gave attended [rows, queries]. */
void close_layer(const Layer *layer, const bf16 *attended, bf16 *residual, int64_t rows, void *scratch)
{
    const int64_t hidden = layer->hidden, queries = layer->queries, inner = layer->inner;
    const int64_t padded = blocks_of(rows) * ROWS;
    Block *sums = scratch;
    bf16 *x = (bf16 *)(sums + blocks_of(rows)), *gated = x + padded * (hidden > queries ? hidden : queries);
    configure_tiles();
    pack(attended, rows, queries, x);
    add((Product){x, layer->output, layer->output_bias, residual, sums, rows, queries, hidden, .stride = hidden});
    pack_norm(residual, layer->mlp_norm, layer->eps, rows, hidden, x);
    gate((Product){x, layer->gate_up, layer->gate_up_bias, gated, sums, rows, hidden, 2 * inner});
    add((Product){gated, layer->down, layer->down_bias, residual, sums, rows, inner, hidden, .stride = hidden});
    _tile_release();
}
