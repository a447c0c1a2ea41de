/* divide.cuh - division rounded to nearest, not inlined: it is long, and few weights divide. */
#pragma once

namespace {

__device__ __noinline__ float divide(float a, float b)
{
    return __fdiv_rn(a, b);
}

} // namespace
