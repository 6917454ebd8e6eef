/* bfloat16 in vectors of sixteen. */
#ifndef QUAIL_FRAMES_BF16_H
#define QUAIL_FRAMES_BF16_H

#include <immintrin.h>
#include <stdint.h>

typedef uint16_t bf16;

#define LOG2_E 1.44269504f

static inline __m512 widened(__m256i short_form)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(short_form), 16));
}

static inline __m512 load16(const bf16 *from) { return widened(_mm256_loadu_si256((const __m256i *)from)); }

static inline void store16(bf16 *to, __m512 x) { _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(x)); }

static inline void store32(bf16 *to, __m512 low, __m512 high)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* x as a bfloat16 holds it. */
static inline __m512 rounded(__m512 x) { return widened((__m256i)_mm512_cvtneps_pbh(x)); }

/* x and y as bfloat16, side by side. */
static inline __m512i paired(__m512 x, __m512 y)
{
    const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* 2^x to 1e-7, by a polynomial (minimax in relative error) of what x is above its floor; exactly 0 below -126.

   There 2^x would leave the normal numbers, for which a processor takes 15 times as long. */
static inline __m512 exp2_16(__m512 x)
{
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m512 rest = _mm512_maskz_reduce_ps(normal, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 sum = _mm512_set1_ps(1.877575301e-3f);
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(8.989343416e-3f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(5.582631526e-2f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(2.401536180e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(6.931530731e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(9.999999251e-1f));
    return _mm512_maskz_scalef_ps(normal, sum, x);
}

#endif
