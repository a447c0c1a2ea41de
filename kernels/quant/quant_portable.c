/* quant_portable.c - the loops of quantisation, for any processor. */
#include "kernels/quant/quant_loops.h"

QUANT_OPS(quant_portable);
