// The trivial hand: it reads the query and replies a constant.
#define IMPORT(name) __attribute__((import_module("glovebox"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

IMPORT(query_read) int query_read(void *to, unsigned capacity);
IMPORT(reply) int reply(const void *text, unsigned length);

static char query[4096];
static const char text[] = "Nothing happened.";

EXPORT(glovebox_query_v1) int answer(void) {
	if (query_read(query, sizeof query) <= 0)
		return 1;
	return reply(text, sizeof text - 1);
}
