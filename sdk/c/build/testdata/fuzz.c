/* A target for libFuzzer. The first byte of an input chooses who reads the rest: the
 * reader of JSON, the query's, the time's, or the sample hand's calls of the host, each of
 * which is answered with it. The second tells after how many allocations there is no more
 * memory, 0 that there is enough. */
#include <stdlib.h>
#include <string.h>

#include "glovebox.h"

/* The test compiles all of this with -Dmalloc=scarce_malloc -Drealloc=scarce_realloc. */
#undef malloc
#undef realloc
void *malloc(size_t size);
void *realloc(void *old, size_t size);

static size_t allocations = SIZE_MAX;

static bool spent(void) {
    if (allocations && allocations != SIZE_MAX)
        allocations--;
    return !allocations;
}

void *scarce_malloc(size_t size) { return spent() ? NULL : malloc(size); }

void *scarce_realloc(void *old, size_t size) { return spent() ? NULL : realloc(old, size); }

static void must(bool holds) {
    if (!holds)
        abort();
}

/* write_json visits all that a value has. */
static void write_json(gb_buffer *b, const gb_json *value) {
    bool array = gb_json_type_of(value) == GB_JSON_ARRAY, object = gb_json_type_of(value) == GB_JSON_OBJECT;
    if (!array && !object) {
        gb_str text = gb_json_string(value, GB_STR("other"), NULL);
        must(gb_is_text(text) && text.data[text.size] == 0);
        gb_json_integer(value, 0, NULL);
        gb_json_boolean(value, false, NULL);
        gb_json_number(value, 0, NULL);
        gb_buffer_add_json(b, text);
        return;
    }
    size_t count = 0;
    gb_buffer_add(b, array ? GB_STR("[") : GB_STR("{"));
    for (const gb_json *i = gb_json_first(value); i; i = gb_json_next(i), count++) {
        if (count)
            gb_buffer_add(b, GB_STR(","));
        if (object) {
            gb_buffer_add_json(b, gb_json_key(i));
            gb_buffer_add(b, GB_STR(":"));
        }
        write_json(b, i);
    }
    gb_buffer_add(b, array ? GB_STR("]") : GB_STR("}"));
    must(count == gb_json_count(value));
}

/* What was read and written again is read as the same. */
static void json(gb_str text) {
    const gb_json *value;
    if (gb_json_parse(text, &value))
        return;
    allocations = SIZE_MAX;
    gb_buffer once = {0}, twice = {0};
    write_json(&once, value);
    must(!gb_json_parse(gb_buffer_str(&once), &value));
    write_json(&twice, value);
    must(!once.status && !twice.status && gb_str_equal(gb_buffer_str(&once), gb_buffer_str(&twice)));
    gb_buffer_free(&once);
    gb_buffer_free(&twice);
    gb_arena_release((gb_mark){0});
}

static void time(gb_str text) {
    gb_time time, again;
    char formatted[GB_TIME_SIZE];
    if (!gb_time_parse(text, &time) || !gb_time_format(time, formatted))
        return;
    must(gb_time_parse(gb_str_of(formatted), &again) && again.seconds == time.seconds);
    must(time.nanos >= 0 && time.nanos < 1000000000 && gb_time_compare(again, time) <= 0);
}

static void tokens(gb_str text) {
    int64_t cost = gb_tokens(text);
    must(gb_tokens_cut(text, cost).size == text.size);
    gb_str less = gb_tokens_cut(text, cost / 2);
    must(gb_tokens(less) <= cost / 2);
}

/* A directory that never ends would keep the hand for ever, as it may: the host ends that. */
static gb_status answer(void *context, gb_str request, gb_str *result) {
    static int left;
    const gb_json *read;
    gb_str head = gb_str_cut(&request, '\n', NULL);
    if (!context)
        left = 40;
    else if (--left < 0)
        return GB_TOO_MANY_CALLS;
    size_t scarce = allocations;
    allocations = SIZE_MAX; /* for this check, not for the hand */
    must(!context || (gb_json_parse(head, &read) == GB_OK && gb_json_type_of(read) == GB_JSON_OBJECT));
    allocations = scarce;
    if (context)
        *result = *(gb_str *)context;
    return GB_OK;
}

/* A read that fails leaves what was there. */
static void read_at_most(size_t limit) {
    allocations = SIZE_MAX;
    gb_buffer b = {0};
    gb_buffer_add(&b, GB_STR("before"));
    gb_status status = gb_files_read(GB_STR("docs"), GB_STR("a"), limit, &b);
    must(b.size - strlen("before") <= limit && (!status || b.size == strlen("before")) && b.data[b.size] == 0);
    gb_buffer_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char commands[] = "{\"max_output_tokens\":50,\"prompt\":\"list\\nread a\\nsize a\\nget u\\npost u t\\n"
                                   "kv-get k\\nkv-set k v\\nkv-list\\nask x\"}";
    if (size < 2)
        return 0;
    gb_str rest = {(const char *)data + 2, size - 2}, none;
    allocations = data[1] ? data[1] : SIZE_MAX;
    gb_native_host host = {&rest, answer, answer, answer, answer, answer, answer, answer, answer};
    switch (data[0] % 4) {
    case 0:
        json(rest);
        break;
    case 1:
        gb_native_run(rest, NULL);
        break;
    case 2:
        time(rest);
        tokens(rest);
        break;
    default:
        answer(NULL, rest, &none);
        gb_native_run(gb_str_of(commands), &host);
        answer(NULL, rest, &none);
        read_at_most(3);
    }
    return 0;
}
