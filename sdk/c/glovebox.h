/* What a Glovebox hand written in C includes.
 *
 * A hand is one function that answers one query:
 *
 *     #include "glovebox.h"
 *
 *     void hand_answer(const gb_query *q) {
 *         gb_replyf("You asked: " GB_FMT, GB_ARG(q->prompt));
 *     }
 *
 * glovebox.c does the rest: it exports the entry of the module, asks the host for
 * the query and calls hand_answer. Calling a function of a capability (files, http,
 * kv, llm) is what makes the module ask for it; the manifest must ask for it too.
 *
 * Memory. Every query runs in an instance of its own that is thrown away afterwards,
 * so nothing has to be freed. What the functions below return lies in the arena of
 * the query and stays as it is until the query ends; what they are given they only
 * read, and keep nothing of it. A gb_buffer owns its bytes itself. A hand that calls
 * the host thousands of times gives memory back with gb_arena_mark and
 * gb_arena_release, and reuses its buffers.
 *
 * Text is a gb_str: a pointer and a size. The bytes are UTF-8 unless something else
 * is said, and may hold NUL. Behind those that the SDK returns there is one more, a
 * NUL that the size does not count: without a NUL inside they are C strings too.
 *
 * There are no threads in a hand, and these functions are for one thread alone.
 *
 * The constants are those of the Go package abi. This file is written by
 * `go generate ./sdk/internal/constants`: change the template there.
 */
#ifndef GLOVEBOX_H
#define GLOVEBOX_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The contract ------------------------------------------------------------ */

/* The version of the contract, the name of the entry that glovebox.c exports, and the
 * one that GB_WARM does. */
#define GB_ABI_VERSION 1
#define GB_EXPORT_QUERY "glovebox_query_v1"
#define GB_EXPORT_WARM "glovebox_warm_v1"

/* The import modules. */
#define GB_MODULE_CORE "glovebox"
#define GB_MODULE_HTTP "glovebox_http"
#define GB_MODULE_FILES "glovebox_files"
#define GB_MODULE_KV "glovebox_kv"
#define GB_MODULE_LLM "glovebox_llm"

/* Why a call failed: the negative codes of the contract, and two kinds of this SDK
 * that no host sends. GB_OK is 0, so that `if (status)` asks for a failure. */
typedef enum gb_status {
    GB_OK = 0,
    GB_BAD_POINTER = -1,
    GB_NOT_GRANTED = -2,
    GB_BAD_REQUEST = -3,
    GB_TOO_LARGE = -4,
    GB_TOO_MANY_CALLS = -5,
    GB_QUOTA_EXCEEDED = -6,
    GB_DENIED = -7,
    GB_NOT_FOUND = -8,
    GB_TIMEOUT = -9,
    GB_DISABLED = -10,
    GB_UNAVAILABLE = -11,
    GB_OUT_OF_MEMORY = 1, /* the query's memory is used up */
    GB_MALFORMED = 2      /* a text is not the JSON that it should be */
} gb_status;

/* The kinds of the contract, for a macro that is given a constant and a name. */
#define GB_KINDS(each) \
    each(GB_BAD_POINTER, "bad_pointer") \
    each(GB_NOT_GRANTED, "not_granted") \
    each(GB_BAD_REQUEST, "bad_request") \
    each(GB_TOO_LARGE, "too_large") \
    each(GB_TOO_MANY_CALLS, "too_many_calls") \
    each(GB_QUOTA_EXCEEDED, "quota_exceeded") \
    each(GB_DENIED, "denied") \
    each(GB_NOT_FOUND, "not_found") \
    each(GB_TIMEOUT, "timeout") \
    each(GB_DISABLED, "disabled") \
    each(GB_UNAVAILABLE, "unavailable")

/* The severity of a log line. */
typedef enum gb_level {
    GB_DEBUG = 0,
    GB_INFO = 1,
    GB_WARN = 2,
    GB_ERROR = 3
} gb_level;

/* What the contract bounds. */
#define GB_MAX_PROMPT_BYTES 16384
#define GB_MAX_REQUEST_BYTES 1048576
#define GB_MAX_FAILURE_BYTES 16384
#define GB_MAX_PAGE_ENTRIES 1000
#define GB_MAX_KEY_BYTES 512

/* What the host allows unless the operator changed it. */
#define GB_DEFAULT_OUTPUT_BYTES 65536
#define GB_DEFAULT_LOG_BYTES 65536
#define GB_DEFAULT_LOG_LINES 1000
#define GB_DEFAULT_CALLS 10000
#define GB_DEFAULT_FILE_READ_BYTES 1048576
#define GB_DEFAULT_FILE_TOTAL_BYTES 268435456
#define GB_DEFAULT_HTTP_REQUESTS 20
#define GB_DEFAULT_HTTP_BYTES 4194304
#define GB_DEFAULT_HTTP_TIMEOUT_MILLIS 10000
#define GB_DEFAULT_KV_VALUE_BYTES 1048576
#define GB_DEFAULT_KV_TOTAL_BYTES 16777216
#define GB_DEFAULT_LLM_CALLS 8
#define GB_DEFAULT_LLM_INPUT_TOKENS 16000

/* What a code point costs, in parts of a token: GB_PLAIN_QUARTERS, but for the
 * ranges, for a macro that is given the first and the last of one and its cost. */
#define GB_QUARTERS_PER_TOKEN 4
#define GB_PLAIN_QUARTERS 1
#define GB_WEIGHTS(each) \
    each(0x3000, 0x30FF, 6) \
    each(0x3400, 0x4DBF, 6) \
    each(0x4E00, 0x9FFF, 6) \
    each(0xAC00, 0xD7AF, 6) \
    each(0xFF00, 0xFFEF, 6) \
    each(0x10000, 0x1FFFF, 8) \
    each(0x20000, 0x2A6DF, 6) \
    each(0x2A6E0, 0x2A6FF, 8) \
    each(0x2A700, 0x2EBEF, 6) \
    each(0x2EBF0, 0x10FFFF, 8)

/* The name of a status in the contract, such as "not_found"; "ok" for GB_OK,
 * "unavailable" for a code that is not known. Static. */
const char *gb_status_name(gb_status status);

/* ---- Text and memory --------------------------------------------------------- */

typedef struct gb_str {
    const char *data; /* never NULL in what the SDK returns */
    size_t size;      /* in bytes */
} gb_str;

/* GB_STR("literal") is a gb_str of a string literal. */
#define GB_STR(literal) ((gb_str){"" literal, sizeof(literal) - 1})

/* printf("[" GB_FMT "]", GB_ARG(s)) prints a gb_str up to its first NUL. */
#define GB_FMT "%.*s"
#define GB_ARG(s) (int)((s).size < INT32_MAX ? (s).size : INT32_MAX), (s).data

/* gb_str_of returns text, which ends at its NUL, as a gb_str; NULL is empty. Nothing
 * is copied. */
gb_str gb_str_of(const char *text);

bool gb_str_equal(gb_str a, gb_str b);
bool gb_str_starts(gb_str text, gb_str prefix);

/* gb_str_cut splits *text at the first sep: it returns what stands before, and leaves
 * in *text what stands behind. Without a sep it returns all and leaves nothing.
 * found, if not NULL, is told which. It walks over lines:
 *
 *     while (rest.size) { gb_str line = gb_str_cut(&rest, '\n', NULL); ... }
 */
gb_str gb_str_cut(gb_str *text, char sep, bool *found);

/* gb_is_text tells whether the bytes are UTF-8. */
bool gb_is_text(gb_str bytes);

/* gb_alloc returns size bytes of zeros in the arena, aligned for any type, or NULL if
 * the memory is used up. count * size of gb_alloc_array may overflow: NULL then. */
void *gb_alloc(size_t size);
void *gb_alloc_array(size_t count, size_t size);

/* gb_arena_mark remembers how full the arena is; gb_arena_release gives back all that
 * was put there since, so that a loop over many files or pages runs in the memory of
 * one. Marks are released in the reverse order of their making. */
typedef struct gb_mark {
    void *chunk;
    size_t used;
} gb_mark;
gb_mark gb_arena_mark(void);
void gb_arena_release(gb_mark mark);

/* A gb_buffer is text that grows: gb_buffer b = {0}. Its bytes lie outside the arena
 * and end with a NUL. When something fails, the status keeps the first reason and
 * later calls do nothing, so that one look at the end is enough. */
typedef struct gb_buffer {
    char *data;
    size_t size;
    size_t capacity; /* of data; the SDK's own */
    gb_status status;
} gb_buffer;

/* They append a text, formatted text, a number in decimal, and a text as a JSON
 * string with its quotes; the last fails with GB_BAD_REQUEST if it is not UTF-8. */
void gb_buffer_add(gb_buffer *b, gb_str text);
void gb_buffer_addf(gb_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gb_buffer_addv(gb_buffer *b, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void gb_buffer_add_int(gb_buffer *b, int64_t number);
void gb_buffer_add_json(gb_buffer *b, gb_str text);

/* gb_buffer_str is what the buffer holds, until it is changed. */
gb_str gb_buffer_str(const gb_buffer *b);

/* gb_buffer_truncate keeps the first size bytes; more than there are keep all.
 * gb_buffer_clear empties the buffer, its status too, and keeps the memory for what
 * comes next; gb_buffer_free gives it back. */
void gb_buffer_truncate(gb_buffer *b, size_t size);
void gb_buffer_clear(gb_buffer *b);
void gb_buffer_free(gb_buffer *b);

/* ---- Time -------------------------------------------------------------------- */

/* An instant, in seconds of UTC since 1970-01-01T00:00:00Z, as in time_t. */
typedef struct gb_time {
    int64_t seconds;
    int32_t nanos; /* 0 to 999,999,999, to be added also before 1970 */
} gb_time;

/* gb_time_parse reads an RFC 3339 time of the years 0000 to 9999, with any offset.
 * What is below a nanosecond is left out; a leap second (":60") is refused, since
 * a gb_time has no place for it. */
bool gb_time_parse(gb_str text, gb_time *time);

/* gb_time_format writes the time in UTC, "2026-03-23T09:00:00Z", without what is
 * below a second. It fails for years that have not four digits. */
#define GB_TIME_SIZE 21
bool gb_time_format(gb_time time, char text[GB_TIME_SIZE]);

/* gb_time_compare is negative, 0 or positive as a is before, at or after b. */
int gb_time_compare(gb_time a, gb_time b);

/* ---- JSON -------------------------------------------------------------------- */

/* How deep arrays and objects may stand in each other in what is parsed. */
#define GB_MAX_JSON_DEPTH 64

typedef enum gb_json_type {
    GB_JSON_NULL,
    GB_JSON_BOOLEAN,
    GB_JSON_NUMBER,
    GB_JSON_STRING,
    GB_JSON_ARRAY,
    GB_JSON_OBJECT
} gb_json_type;

/* A value of a JSON text. All functions take NULL, too, for one that is not there. */
typedef struct gb_json gb_json;

/* gb_json_parse reads a whole text (RFC 8259) into the arena, where it takes up to
 * about 30 times its size. A surrogate without its other half, and each byte that is
 * not UTF-8, become U+FFFD. It fails with GB_MALFORMED, also if the text is too deep,
 * and with GB_OUT_OF_MEMORY. */
gb_status gb_json_parse(gb_str text, const gb_json **value);

gb_json_type gb_json_type_of(const gb_json *value); /* GB_JSON_NULL for NULL */

/* gb_json_get returns the member of an object, of several with that key the last;
 * NULL if there is none, or value is no object. */
const gb_json *gb_json_get(const gb_json *value, const char *key);

/* The members of an object or the items of an array, in their order:
 *
 *     for (const gb_json *i = gb_json_first(list); i; i = gb_json_next(i)) ...
 */
const gb_json *gb_json_first(const gb_json *value);
const gb_json *gb_json_next(const gb_json *item);
size_t gb_json_count(const gb_json *value);
gb_str gb_json_key(const gb_json *member);

/* Typed access: the value, or otherwise, if it is absent or not of that type. found,
 * if not NULL, is told which. An integer has neither fraction nor exponent and fits;
 * a number fits into a double. */
gb_str gb_json_string(const gb_json *value, gb_str otherwise, bool *found);
int64_t gb_json_integer(const gb_json *value, int64_t otherwise, bool *found);
double gb_json_number(const gb_json *value, double otherwise, bool *found);
bool gb_json_boolean(const gb_json *value, bool otherwise, bool *found);

/* ---- The query and its answer ------------------------------------------------ */

typedef struct gb_query {
    gb_str prompt;  /* the operator's question; may be empty */
    gb_time from;   /* the window asked about: from <= t < to */
    gb_time to;
    gb_time now;    /* the host's time of asking: use it in place of time() */
    gb_str timezone; /* the IANA name of the zone to show times in */
    int64_t max_output_tokens; /* the host cuts a reply that costs more */
    gb_str subject; /* opaque; the same for this hand and one user */
    const gb_json *config; /* an object, or NULL; see gb_config_string and so on */
} gb_query;

/* hand_answer is the hand: the author writes it. It answers with gb_reply, or fails
 * with gb_fail; without either the reply is empty, which means that there is nothing
 * to say. */
void hand_answer(const gb_query *q);

/* GB_WARM(function), once and outside of functions, names a void function(void) that a
 * host may call before the first query: it keeps the memory as it is then, and each
 * query begins with a copy of it. Build tables there, in static variables or what
 * malloc gives; the arena is the query's. It may also never be called, so let it only
 * do early what hand_answer does where it was not:
 *
 *     static bool built;
 *     static void build(void) { ...; built = true; }
 *     GB_WARM(build)
 *     void hand_answer(const gb_query *q) { if (!built) build(); ... }
 *
 * There is no query then, no capability and no log: a call of the host ends it, as does
 * a trap, and queries begin as if it had not run. The clock and chance are not real:
 * srand belongs into hand_answer. A native test calls glovebox_warm(). */
#ifdef __wasm__
#define GB_EXPORT(name) __attribute__((export_name(name)))
#else
#define GB_EXPORT(name)
#endif
#define GB_WARM(function) \
    void glovebox_warm(void); \
    GB_EXPORT(GB_EXPORT_WARM) void glovebox_warm(void) { function(); }

/* gb_reply appends to the reply, which all together is one text in UTF-8. It returns
 * GB_TOO_LARGE when the host's limit is met; what fits is kept. */
gb_status gb_reply(gb_str text);
gb_status gb_replyf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* gb_fail says that the query failed, and why. The text, of which GB_MAX_FAILURE_BYTES
 * are kept, is shown to the operator; the reply is dropped. The last call counts.
 * hand_answer should return then. */
void gb_fail(gb_str why);
void gb_failf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* gb_log writes one or more lines to the query's log, which the operator can read. */
void gb_log(gb_level level, gb_str text);
void gb_logf(gb_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The operator's values, checked against the manifest. They give otherwise, and
 * false in found, if not NULL, where there is no value of that type. */
gb_str gb_config_string(const gb_query *q, const char *key, gb_str otherwise, bool *found);
int64_t gb_config_integer(const gb_query *q, const char *key, int64_t otherwise, bool *found);
double gb_config_number(const gb_query *q, const char *key, double otherwise, bool *found);
bool gb_config_boolean(const gb_query *q, const char *key, bool otherwise, bool *found);

/* gb_config_list returns an array of strings, for gb_json_first and gb_json_next, or
 * NULL if there is none. */
const gb_json *gb_config_list(const gb_query *q, const char *key);

/* gb_tokens estimates what a text costs a model, as the host does. gb_tokens_cut
 * returns the longest part from its beginning, of whole code points, that costs at
 * most max; nothing if max is 0 or less. A byte that is not UTF-8 counts as a code
 * point. */
int64_t gb_tokens(gb_str text);
gb_str gb_tokens_cut(gb_str text, int64_t max);

/* ---- files: the directories that the operator granted under names, the roots --- */

typedef enum gb_file_type {
    GB_FILE,
    GB_DIRECTORY,
    GB_OTHER /* neither; cannot be read */
} gb_file_type;

typedef struct gb_file {
    gb_str name;
    gb_file_type type;
    int64_t size; /* in bytes; 0 for what is no file */
    gb_time modified;
} gb_file;

/* Paths are relative to the root, with "/" between the elements; "" is the root
 * itself. These functions fail with GB_NOT_FOUND, GB_DENIED for a path that leads out
 * of the root or a file that is not a regular one, GB_NOT_GRANTED for a root that was
 * not granted, GB_BAD_REQUEST for a path that is not UTF-8, GB_TOO_LARGE,
 * GB_QUOTA_EXCEEDED, GB_TOO_MANY_CALLS, GB_TIMEOUT, GB_UNAVAILABLE, GB_OUT_OF_MEMORY
 * and GB_MALFORMED; what they were to fill in is then as it was. */

/* gb_files_stat describes a file or directory. */
gb_status gb_files_stat(gb_str root, gb_str path, gb_file *file);

typedef struct gb_file_page {
    gb_file self; /* what was listed */
    const gb_file *entries; /* if it is a directory: in the order of their bytes */
    size_t count;
    bool more; /* entries follow the last one */
} gb_file_page;

/* gb_files_list returns the entries behind the name after, at most limit of them;
 * 0 means GB_MAX_PAGE_ENTRIES, the most there can be. The whole directory:
 *
 *     gb_file_page page;
 *     gb_str after = GB_STR("");
 *     do {
 *         if ((status = gb_files_list(root, path, after, 0, &page))) break;
 *         for (size_t i = 0; i < page.count; i++) after = page.entries[i].name; // and so on
 *     } while (page.more && page.count);
 */
gb_status gb_files_list(gb_str root, gb_str path, gb_str after, int limit, gb_file_page *page);

/* gb_files_read_at appends at most length bytes of a file to the buffer, from offset
 * on; fewer, or none, at its end. length is at most the host's limit
 * (GB_DEFAULT_FILE_READ_BYTES unless the operator changed it). */
gb_status gb_files_read_at(gb_str root, gb_str path, int64_t offset, size_t length, gb_buffer *into);

/* gb_files_read appends a whole file, in pieces of GB_FILE_PIECE_BYTES. It fails with
 * GB_TOO_LARGE if that is more than limit bytes. */
#define GB_FILE_PIECE_BYTES (GB_DEFAULT_FILE_READ_BYTES / 2)
gb_status gb_files_read(gb_str root, gb_str path, size_t limit, gb_buffer *into);

/* ---- http: the hosts that the operator granted -------------------------------- */

typedef struct gb_header {
    gb_str name;
    gb_str value;
} gb_header;

typedef struct gb_http_request {
    gb_str method; /* in upper case; empty means GET */
    gb_str url;    /* http:// or https://, without user name and fragment */
    const gb_header *header;
    size_t header_count;
    gb_str body;        /* any bytes */
    int32_t timeout_ms; /* of all, redirects included; 0 means the host's limit */
} gb_http_request;

typedef struct gb_http_response {
    int status; /* one that tells of a failure is none of gb_http_fetch */
    gb_str url; /* the last one, after redirects */
    const gb_header *header;
    size_t header_count;
    gb_str body;    /* any bytes; decoded, the operator's secrets taken out */
    bool truncated; /* the body was longer than the host's limit */
} gb_http_response;

/* gb_http_fetch makes one request. It fails with GB_DENIED or GB_NOT_GRANTED where
 * that is not allowed, GB_BAD_REQUEST for a URL or header that is none, GB_TIMEOUT,
 * GB_QUOTA_EXCEEDED, GB_TOO_MANY_CALLS, GB_TOO_LARGE, GB_UNAVAILABLE when the server is
 * not there, GB_OUT_OF_MEMORY and GB_MALFORMED. */
gb_status gb_http_fetch(const gb_http_request *request, gb_http_response *response);

/* gb_http_header returns the first value under a name, in letters of any case, or
 * otherwise. */
gb_str gb_http_header(const gb_http_response *response, const char *name, gb_str otherwise);

/* ---- kv: values of this hand for the user whom it is asked for ----------------- */

/* Keys are 1 to GB_MAX_KEY_BYTES bytes of UTF-8, values any bytes. The functions fail
 * with GB_NOT_FOUND for an absent key (only gb_kv_get), GB_BAD_REQUEST for a key that
 * is none, GB_TOO_LARGE, GB_QUOTA_EXCEEDED, GB_NOT_GRANTED, GB_TOO_MANY_CALLS,
 * GB_TIMEOUT, GB_UNAVAILABLE, GB_OUT_OF_MEMORY and GB_MALFORMED. */
gb_status gb_kv_get(gb_str key, gb_str *value);

/* gb_kv_set returns GB_OK when the value is on the operator's disk, which takes its
 * time: one value that holds many things is quicker than many. */
gb_status gb_kv_set(gb_str key, gb_str value);

gb_status gb_kv_delete(gb_str key);

typedef struct gb_key_page {
    const gb_str *keys; /* in the order of their bytes */
    size_t count;
    bool more; /* keys follow the last one */
} gb_key_page;

/* gb_kv_list returns the keys that begin with prefix and come after the key after,
 * at most limit of them; 0 means GB_MAX_PAGE_ENTRIES, the most there can be. */
gb_status gb_kv_list(gb_str prefix, gb_str after, int limit, gb_key_page *page);

/* ---- llm: the host's language model -------------------------------------------- */

typedef struct gb_llm_request {
    gb_str system; /* how to answer; may be empty */
    gb_str prompt; /* holds more than white space */
    int64_t max_output_tokens; /* 0 means what is left of the query's */
} gb_llm_request;

typedef struct gb_llm_response {
    gb_str text; /* what others wrote may speak in it: trust it no more than that */
    int64_t input_tokens;
    int64_t output_tokens;
} gb_llm_response;

/* gb_llm_complete asks for one answer, without tools. It fails with GB_BAD_REQUEST for
 * a prompt that is none, GB_QUOTA_EXCEEDED, GB_TOO_LARGE for one over the model's window,
 * GB_DENIED for one that the model declines, GB_DISABLED where there is no model,
 * GB_NOT_GRANTED, GB_TOO_MANY_CALLS, GB_TIMEOUT, GB_UNAVAILABLE, GB_OUT_OF_MEMORY and
 * GB_MALFORMED. */
gb_status gb_llm_complete(const gb_llm_request *request, gb_llm_response *response);

/* ---- Native tests --------------------------------------------------------------- */

/* Compiled for anything but WebAssembly, the SDK calls this host of a test in place of
 * the real one. */
#ifndef __wasm__

/* One capability. request is what the hand sent: JSON, and perhaps LF and a body; it
 * answers with GB_OK and what ABI.md says as *result, which is copied, or with why not. */
typedef gb_status gb_native_call(void *context, gb_str request, gb_str *result);

/* A call that is NULL answers GB_NOT_GRANTED. context is given to each. */
typedef struct gb_native_host {
    void *context;
    gb_native_call *files_list, *files_read, *http_fetch;
    gb_native_call *kv_get, *kv_set, *kv_delete, *kv_list, *llm_complete;
} gb_native_host;

/* What came of a query. The texts are those of gb_native_run until it is called again. */
typedef struct gb_native_outcome {
    bool failed;
    gb_str reply;
    gb_str failure;
    gb_str log; /* a line for each call: the level as a digit, a space, the text */
} gb_native_outcome;

/* gb_native_run asks hand_answer one query, in JSON, and returns what came of it. It
 * empties the arena first. host may be NULL. */
gb_native_outcome gb_native_run(gb_str query, const gb_native_host *host);

#endif

#ifdef __cplusplus
}
#endif

#endif
