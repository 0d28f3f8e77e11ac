// The trivial hand: it reads the query and replies a constant. If the prompt
// begins with "!", it asks for a value first, and so waits as long as the host
// likes.
#define IMPORT(name) __attribute__((import_module("glovebox"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

IMPORT(query_read) int query_read(void *to, unsigned capacity);
__attribute__((import_module("glovebox_kv"), import_name("get"))) int kv_get(const void *request, unsigned length);
IMPORT(reply) int reply(const void *text, unsigned length);

static char query[4096];
static const char text[] = "Nothing happened.";
static const char request[] = "{\"key\":\"wait\"}";

EXPORT(glovebox_query_v1) int answer(void) {
	if (query_read(query, sizeof query) <= 0)
		return 1;
	if (query[sizeof "{\"prompt\":\"" - 1] == '!')
		kv_get(request, sizeof request - 1);
	return reply(text, sizeof text - 1);
}
