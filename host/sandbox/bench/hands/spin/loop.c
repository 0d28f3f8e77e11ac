// A hand that never answers: one loop.
__attribute__((export_name("glovebox_query_v1"))) int answer(void) {
	for (volatile int i = 0;; i++)
		;
}
