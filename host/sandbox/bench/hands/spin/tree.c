// A hand that never answers and has no loop: 45 functions, each of which calls
// the next one twice.
static volatile int leaves;

#define CALLS_TWICE(name, next) \
	__attribute__((noinline)) static void name(void) { next(); next(); }

__attribute__((noinline)) static void leaf(void) { leaves++; }
CALLS_TWICE(f0, leaf)
CALLS_TWICE(f1, f0)
CALLS_TWICE(f2, f1)
CALLS_TWICE(f3, f2)
CALLS_TWICE(f4, f3)
CALLS_TWICE(f5, f4)
CALLS_TWICE(f6, f5)
CALLS_TWICE(f7, f6)
CALLS_TWICE(f8, f7)
CALLS_TWICE(f9, f8)
CALLS_TWICE(f10, f9)
CALLS_TWICE(f11, f10)
CALLS_TWICE(f12, f11)
CALLS_TWICE(f13, f12)
CALLS_TWICE(f14, f13)
CALLS_TWICE(f15, f14)
CALLS_TWICE(f16, f15)
CALLS_TWICE(f17, f16)
CALLS_TWICE(f18, f17)
CALLS_TWICE(f19, f18)
CALLS_TWICE(f20, f19)
CALLS_TWICE(f21, f20)
CALLS_TWICE(f22, f21)
CALLS_TWICE(f23, f22)
CALLS_TWICE(f24, f23)
CALLS_TWICE(f25, f24)
CALLS_TWICE(f26, f25)
CALLS_TWICE(f27, f26)
CALLS_TWICE(f28, f27)
CALLS_TWICE(f29, f28)
CALLS_TWICE(f30, f29)
CALLS_TWICE(f31, f30)
CALLS_TWICE(f32, f31)
CALLS_TWICE(f33, f32)
CALLS_TWICE(f34, f33)
CALLS_TWICE(f35, f34)
CALLS_TWICE(f36, f35)
CALLS_TWICE(f37, f36)
CALLS_TWICE(f38, f37)
CALLS_TWICE(f39, f38)
CALLS_TWICE(f40, f39)
CALLS_TWICE(f41, f40)
CALLS_TWICE(f42, f41)
CALLS_TWICE(f43, f42)

__attribute__((export_name("glovebox_query_v1"))) int answer(void) {
	f43();
	f43();
	return 0;
}
