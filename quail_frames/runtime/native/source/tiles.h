/* AMX tiles of bfloat16: sixteen rows of 64 bytes. */
#ifndef QUAIL_FRAMES_TILES_H
#define QUAIL_FRAMES_TILES_H

#include <string.h>

#include "bf16.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 16, ROWS = 32 }; /* rows of a tile, and rows at a time */

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} TileShapes;

/* Eight whole tiles. Constant, for compilers do not see that the instruction reads all of it. */
static const TileShapes WHOLE_TILES __attribute__((aligned(64))) = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE},
};

static inline void configure_tiles(void) { _tile_loadconfig(&WHOLE_TILES); }

#endif
