#include "textflag.h"

// func memoryPages() int32
TEXT ·memoryPages(SB), NOSPLIT, $0-8
	Get SP
	CurrentMemory
	I32Store ret+0(FP)
	RET

// func memoryGrow(pages int32) int32
TEXT ·memoryGrow(SB), NOSPLIT, $0-16
	Get SP
	I32Load pages+0(FP)
	GrowMemory
	I32Store ret+8(FP)
	RET
