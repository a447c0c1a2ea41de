/* wgmma_operands.cuh - the operands of a warpgroup mma, spelled by the preprocessor.
 * WGMMA_NAMES_n: its first n operands, which are its sums; what follows them has a number that
 * depends on n. WGMMA_OPERANDS_n: elements of an array from i on, as operands of a kind. */
#pragma once

#define WGMMA_NAMES_4  "%0, %1, %2, %3"
#define WGMMA_NAMES_8  WGMMA_NAMES_4 ", %4, %5, %6, %7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_32 WGMMA_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_64                                                                             \
    WGMMA_NAMES_32                                                                                 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_96                                                                             \
    WGMMA_NAMES_64                                                                                 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_128                                                                            \
    WGMMA_NAMES_96                                                                                 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "           \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "               \
    "%123, %124, %125, %126, %127"

#define WGMMA_OPERANDS_4(kind, d, i)  kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3])
#define WGMMA_OPERANDS_8(kind, d, i)  WGMMA_OPERANDS_4(kind, d, i), WGMMA_OPERANDS_4(kind, d, i + 4)
#define WGMMA_OPERANDS_16(kind, d, i) WGMMA_OPERANDS_8(kind, d, i), WGMMA_OPERANDS_8(kind, d, i + 8)
#define WGMMA_OPERANDS_24(kind, d, i)                                                              \
    WGMMA_OPERANDS_16(kind, d, i), WGMMA_OPERANDS_8(kind, d, i + 16)
#define WGMMA_OPERANDS_32(kind, d, i)                                                              \
    WGMMA_OPERANDS_16(kind, d, i), WGMMA_OPERANDS_16(kind, d, i + 16)
#define WGMMA_OPERANDS_64(kind, d, i)                                                              \
    WGMMA_OPERANDS_32(kind, d, i), WGMMA_OPERANDS_32(kind, d, i + 32)
#define WGMMA_OPERANDS_96(kind, d, i)                                                              \
    WGMMA_OPERANDS_64(kind, d, i), WGMMA_OPERANDS_32(kind, d, i + 64)
#define WGMMA_OPERANDS_128(kind, d, i)                                                             \
    WGMMA_OPERANDS_64(kind, d, i), WGMMA_OPERANDS_64(kind, d, i + 64)
