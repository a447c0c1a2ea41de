/* quant_avx2.c - the loops of quantisation, compiled for AVX2. */
#include "kernels/quant/quant_loops.h"

QUANT_OPS(quant_avx2);
