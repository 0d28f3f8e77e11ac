/* The Glovebox SDK for C: see glovebox.h, which says what each function promises. */
#include "glovebox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The host ------------------------------------------------------------------ */

/* A capability call. The import is declared here and referred to by the function of
 * the SDK that needs it: the linker drops the functions that a hand does not use, and
 * their imports with them. */
typedef int32_t host_call(const void *request, uint32_t size);

#ifdef __wasm__

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))

IMPORT(GB_MODULE_CORE, "query_size") int32_t host_query_size(void);
IMPORT(GB_MODULE_CORE, "query_read") int32_t host_query_read(void *to, uint32_t capacity);
IMPORT(GB_MODULE_CORE, "reply") int32_t host_reply(const void *text, uint32_t size);
IMPORT(GB_MODULE_CORE, "fail") void host_fail(const void *text, uint32_t size);
IMPORT(GB_MODULE_CORE, "log") void host_log(int32_t level, const void *text, uint32_t size);
IMPORT(GB_MODULE_CORE, "result_read") int32_t host_result_read(void *to, uint32_t capacity);
IMPORT(GB_MODULE_FILES, "list") host_call host_files_list;
IMPORT(GB_MODULE_FILES, "read") host_call host_files_read;
IMPORT(GB_MODULE_HTTP, "fetch") host_call host_http_fetch;
IMPORT(GB_MODULE_KV, "get") host_call host_kv_get;
IMPORT(GB_MODULE_KV, "set") host_call host_kv_set;
IMPORT(GB_MODULE_KV, "delete") host_call host_kv_delete;
IMPORT(GB_MODULE_KV, "list") host_call host_kv_list;
IMPORT(GB_MODULE_LLM, "complete") host_call host_llm_complete;

#else

static int32_t host_query_size(void);
static int32_t host_query_read(void *to, uint32_t capacity);
static int32_t host_reply(const void *text, uint32_t size);
static void host_fail(const void *text, uint32_t size);
static void host_log(int32_t level, const void *text, uint32_t size);
static int32_t host_result_read(void *to, uint32_t capacity);
static host_call host_files_list, host_files_read, host_http_fetch, host_kv_get, host_kv_set, host_kv_delete,
    host_kv_list, host_llm_complete;

#endif

const char *gb_status_name(gb_status status) {
    switch (status) {
#define EACH(kind, name) \
    case kind: \
        return name;
        GB_KINDS(EACH)
#undef EACH
    case GB_OK:
        return "ok";
    case GB_OUT_OF_MEMORY:
        return "out_of_memory";
    case GB_MALFORMED:
        return "malformed";
    }
    return "unavailable";
}

/* status_of turns the negative result of a host call into what the author sees. */
static gb_status status_of(int32_t code) {
    switch (code) {
#define EACH(kind, name) case kind:
        GB_KINDS(EACH)
#undef EACH
        return (gb_status)code;
    }
    return GB_UNAVAILABLE;
}

/* ---- Arenas -------------------------------------------------------------------- */

/* What a chunk holds at least. A test that is built with 1 gives each allocation a
 * chunk of its own, so that a tool which guards the heap sees what leaves its bounds. */
#ifndef GB_CHUNK_BYTES
#define GB_CHUNK_BYTES 16384
#endif

/* A block of memory that is filled from its beginning. They form a list, the newest
 * first. */
typedef struct chunk {
    struct chunk *older;
    size_t capacity; /* of what follows the header */
    size_t used;
} chunk;

#define ALIGNMENT _Alignof(max_align_t)
#define HEADER_BYTES ((sizeof(chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

typedef struct arena {
    chunk *newest;
} arena;

/* The query and what the author is given lie in kept; in scratch what the SDK needs
 * during one call. */
static arena kept, scratch;

static void *arena_alloc(arena *a, size_t size) {
    if (size > SIZE_MAX - HEADER_BYTES - ALIGNMENT - GB_CHUNK_BYTES)
        return NULL;
    size_t at = a->newest ? (a->newest->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
    if (!a->newest || at > a->newest->capacity || a->newest->capacity - at < size) {
        size_t capacity = size > GB_CHUNK_BYTES ? size : GB_CHUNK_BYTES;
        chunk *c = malloc(HEADER_BYTES + capacity);
        if (!c)
            return NULL;
        *c = (chunk){.older = a->newest, .capacity = capacity};
        a->newest = c;
        at = 0;
    }
    a->newest->used = at + size;
    return memset((char *)a->newest + HEADER_BYTES + at, 0, size);
}

static void arena_release(arena *a, gb_mark mark) {
    while (a->newest && a->newest != mark.chunk) {
        chunk *older = a->newest->older;
        free(a->newest);
        a->newest = older;
    }
    if (a->newest)
        a->newest->used = mark.used;
}

static void *arena_array(arena *a, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size)
        return NULL;
    return arena_alloc(a, count * size);
}

/* arena_text copies a text and puts a NUL behind it. */
static gb_status arena_text(arena *a, gb_str text, gb_str *copy) {
    char *data = text.size < SIZE_MAX ? arena_alloc(a, text.size + 1) : NULL;
    if (!data)
        return GB_OUT_OF_MEMORY;
    if (text.size)
        memcpy(data, text.data, text.size);
    *copy = (gb_str){data, text.size};
    return GB_OK;
}

static void scratch_empty(void) { arena_release(&scratch, (gb_mark){0}); }

void *gb_alloc(size_t size) { return arena_alloc(&kept, size); }

void *gb_alloc_array(size_t count, size_t size) { return arena_array(&kept, count, size); }

gb_mark gb_arena_mark(void) { return (gb_mark){kept.newest, kept.newest ? kept.newest->used : 0}; }

void gb_arena_release(gb_mark mark) { arena_release(&kept, mark); }

/* ---- Text ---------------------------------------------------------------------- */

gb_str gb_str_of(const char *text) { return text ? (gb_str){text, strlen(text)} : GB_STR(""); }

bool gb_str_equal(gb_str a, gb_str b) { return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size)); }

bool gb_str_starts(gb_str text, gb_str prefix) {
    return text.size >= prefix.size && (!prefix.size || !memcmp(text.data, prefix.data, prefix.size));
}

gb_str gb_str_cut(gb_str *text, char sep, bool *found) {
    const char *at = text->size ? memchr(text->data, sep, text->size) : NULL;
    if (found)
        *found = at != NULL;
    if (!at) {
        gb_str all = *text;
        *text = GB_STR("");
        return all;
    }
    gb_str before = {text->data, (size_t)(at - text->data)};
    text->data = at + 1;
    text->size -= before.size + 1;
    return before;
}

#define REPLACEMENT 0xFFFD

/* decode returns the code point at the beginning of a text that is not empty, and how
 * many bytes it has: 1 and -1 for a byte that belongs to none. Overlong forms and
 * surrogates are none. */
static int32_t decode(const char *data, size_t size, size_t *length) {
    const unsigned char *b = (const unsigned char *)data;
    *length = 1;
    if (b[0] < 0x80)
        return b[0];
    size_t more = b[0] >= 0xF0 ? 3 : b[0] >= 0xE0 ? 2 : 1;
    if (b[0] < 0xC2 || b[0] > 0xF4 || more >= size)
        return -1;
    int32_t point = b[0] & (0x3F >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((b[i] & 0xC0) != 0x80)
            return -1;
        point = point << 6 | (b[i] & 0x3F);
    }
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (point < least[more] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        return -1;
    *length = more + 1;
    return point;
}

/* encode writes a code point to a place of 4 bytes and returns how many it took. */
static size_t encode(int32_t point, char *to) {
    if (point < 0x80) {
        to[0] = (char)point;
        return 1;
    }
    size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const int32_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    for (size_t i = more; i; i--, point >>= 6)
        to[i] = (char)(0x80 | (point & 0x3F));
    to[0] = (char)(lead[more] | point);
    return more + 1;
}

bool gb_is_text(gb_str bytes) {
    for (size_t i = 0, length; i < bytes.size; i += length)
        if (decode(bytes.data + i, bytes.size - i, &length) < 0)
            return false;
    return true;
}

/* ---- Buffers ------------------------------------------------------------------- */

/* buffer_room makes room for size bytes more, and a NUL behind them. */
static char *buffer_room(gb_buffer *b, size_t size) {
    if (b->status)
        return NULL;
    if (size > SIZE_MAX / 2 - b->size - 1) {
        b->status = GB_OUT_OF_MEMORY;
        return NULL;
    }
    size_t needed = b->size + size + 1;
    if (needed > b->capacity) {
        /* Twice as much, so that what is copied stays in proportion; but where the
         * memory ends, what is needed. */
        size_t capacity = b->capacity > needed / 2 ? b->capacity * 2 : needed;
        char *data = realloc(b->data, capacity);
        if (!data && capacity > needed)
            data = realloc(b->data, capacity = needed);
        if (!data) {
            b->status = GB_OUT_OF_MEMORY;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
    }
    return b->data + b->size;
}

static void buffer_took(gb_buffer *b, size_t size) {
    b->size += size;
    b->data[b->size] = 0;
}

void gb_buffer_add(gb_buffer *b, gb_str text) {
    char *to = buffer_room(b, text.size);
    if (!to)
        return;
    if (text.size)
        memcpy(to, text.data, text.size);
    buffer_took(b, text.size);
}

void gb_buffer_addv(gb_buffer *b, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (size < 0 && !b->status)
        b->status = GB_BAD_REQUEST;
    char *to = size < 0 ? NULL : buffer_room(b, (size_t)size);
    if (!to)
        return;
    vsnprintf(to, (size_t)size + 1, format, args);
    buffer_took(b, (size_t)size);
}

void gb_buffer_addf(gb_buffer *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    gb_buffer_addv(b, format, args);
    va_end(args);
}

void gb_buffer_add_int(gb_buffer *b, int64_t number) {
    char digits[20];
    size_t at = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        digits[--at] = '-';
    gb_buffer_add(b, (gb_str){digits + at, sizeof digits - at});
}

void gb_buffer_add_json(gb_buffer *b, gb_str text) {
    if (!gb_is_text(text)) {
        if (!b->status)
            b->status = GB_BAD_REQUEST;
        return;
    }
    gb_buffer_add(b, GB_STR("\""));
    size_t from = 0;
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        gb_buffer_add(b, (gb_str){text.data + from, i - from});
        from = i + 1;
        static const char hex[] = "0123456789abcdef";
        char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        if (c >= 0x20) {
            escape[1] = (char)c;
            gb_buffer_add(b, (gb_str){escape, 2});
        } else {
            gb_buffer_add(b, (gb_str){escape, sizeof escape});
        }
    }
    gb_buffer_add(b, (gb_str){text.data + from, text.size - from});
    gb_buffer_add(b, GB_STR("\""));
}

gb_str gb_buffer_str(const gb_buffer *b) { return b->data ? (gb_str){b->data, b->size} : GB_STR(""); }

void gb_buffer_truncate(gb_buffer *b, size_t size) {
    if (size < b->size)
        b->data[b->size = size] = 0;
}

void gb_buffer_clear(gb_buffer *b) {
    gb_buffer_truncate(b, 0);
    b->status = GB_OK;
}

void gb_buffer_free(gb_buffer *b) {
    free(b->data);
    *b = (gb_buffer){0};
}

/* ---- Time ---------------------------------------------------------------------- */

#define DAY_SECONDS 86400

/* The days from 1970-01-01 to a day of the proleptic Gregorian calendar, and back, by
 * Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms"
 * (howardhinnant.github.io/date_algorithms.html): years begin in March, so that the
 * leap day is the last one, and 400 of them have 146,097 days. */
static int64_t days_of(int64_t year, int month, int day) {
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t in_era = year - era * 400;
    int64_t in_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static int64_t date_of(int64_t days, int *month, int *day) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t in_era = days - era * 146097;
    int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int64_t in_year = in_era - (365 * year + year / 4 - year / 100);
    int64_t shifted = (5 * in_year + 2) / 153;
    *day = (int)(in_year - (153 * shifted + 2) / 5 + 1);
    *month = (int)(shifted < 10 ? shifted + 3 : shifted - 9);
    return year + era * 400 + (*month <= 2);
}

/* number reads so many digits, followed by one of what stands in behind (unless that is
 * ""), and moves on behind both. It returns -1 if they are not there. */
static int number(gb_str *text, size_t digits, const char *behind) {
    if (text->size < digits + (*behind != 0))
        return -1;
    int value = 0;
    for (size_t i = 0; i < digits; i++) {
        if (text->data[i] < '0' || text->data[i] > '9')
            return -1;
        value = value * 10 + (text->data[i] - '0');
    }
    if (*behind) {
        char c = text->data[digits++];
        if (!c || !strchr(behind, c))
            return -1;
    }
    text->data += digits;
    text->size -= digits;
    return value;
}

bool gb_time_parse(gb_str text, gb_time *time) {
    int year = number(&text, 4, "-"), month = number(&text, 2, "-"), day = number(&text, 2, "Tt");
    int hour = number(&text, 2, ":"), minute = number(&text, 2, ":"), second = number(&text, 2, "");
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
        second < 0 || second > 59)
        return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > month_days[month - 1] + (leap && month == 2))
        return false;
    int32_t nanos = 0;
    if (text.size && text.data[0] == '.') {
        int digit, digits = 0;
        text.data++, text.size--;
        for (int32_t unit = 100000000; (digit = number(&text, 1, "")) >= 0; unit /= 10, digits++)
            nanos += digit * unit;
        if (!digits)
            return false;
    }
    int64_t offset = 0;
    if (!text.size)
        return false;
    char zone = text.data[0];
    text.data++, text.size--;
    if (zone == '+' || zone == '-') {
        int hours = number(&text, 2, ":"), minutes = number(&text, 2, "");
        if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59)
            return false;
        offset = (zone == '-' ? -60 : 60) * (hours * 60 + minutes);
    } else if (zone != 'Z' && zone != 'z') {
        return false;
    }
    if (text.size)
        return false;
    time->seconds = days_of(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    time->nanos = nanos;
    return true;
}

static void put_digits(char *to, int64_t value, int digits) {
    for (; digits; value /= 10)
        to[--digits] = (char)('0' + value % 10);
}

bool gb_time_format(gb_time time, char text[GB_TIME_SIZE]) {
    int64_t days = time.seconds / DAY_SECONDS, rest = time.seconds % DAY_SECONDS;
    if (rest < 0)
        days--, rest += DAY_SECONDS;
    text[0] = 0;
    if (days < days_of(0, 1, 1) || days > days_of(9999, 12, 31))
        return false;
    int month, day;
    int64_t year = date_of(days, &month, &day);
    memcpy(text, "0000-00-00T00:00:00Z", GB_TIME_SIZE);
    put_digits(text, year, 4);
    put_digits(text + 5, month, 2);
    put_digits(text + 8, day, 2);
    put_digits(text + 11, rest / 3600, 2);
    put_digits(text + 14, rest / 60 % 60, 2);
    put_digits(text + 17, rest % 60, 2);
    return true;
}

int gb_time_compare(gb_time a, gb_time b) {
    if (a.seconds != b.seconds)
        return a.seconds < b.seconds ? -1 : 1;
    return (a.nanos > b.nanos) - (a.nanos < b.nanos);
}

/* ---- JSON ---------------------------------------------------------------------- */

struct gb_json {
    gb_json_type type;
    bool truth;    /* of a boolean */
    size_t count;  /* of the children of an array or object */
    gb_str text;   /* of a string, unescaped; of a number, as it is written */
    gb_str key;    /* of a member */
    gb_json *next; /* the sibling behind this one */
    gb_json *first;
};

typedef struct parser {
    arena *to;
    const char *at, *end;
    int depth;
    gb_status status;
} parser;

static bool malformed(parser *p) {
    p->status = GB_MALFORMED;
    return false;
}

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool skip(parser *p, char c) {
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* hex4 reads the four digits of a \u escape; -1 if they are not there. */
static int32_t hex4(parser *p) {
    int32_t value = 0;
    if (p->end - p->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *p->at++;
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            value = value * 16 + (c | 0x20) - 'a' + 10;
        else
            return -1;
    }
    return value;
}

/* unescape reads what stands behind a backslash; -1 if that is no escape. */
static int32_t unescape(parser *p) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return -1;
    char c = *p->at++;
    if (c != 'u') {
        const char *name = c ? strchr(names, c) : NULL;
        return name ? values[name - names] : -1;
    }
    int32_t point = hex4(p);
    if (point < 0xD800 || point > 0xDFFF)
        return point;
    const char *behind = p->at;
    if (point <= 0xDBFF && skip(p, '\\') && skip(p, 'u')) {
        int32_t low = hex4(p);
        if (low >= 0xDC00 && low <= 0xDFFF)
            return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    p->at = behind;
    return REPLACEMENT;
}

/* unquote reads a string up to its closing quote and writes it to a place, unless that
 * is NULL; it returns its size, or SIZE_MAX if it is no string. */
static size_t unquote(parser *p, char *to) {
    size_t size = 0;
    while (p->at < p->end) {
        size_t length = 1;
        int32_t point;
        if (*p->at == '"') {
            p->at++;
            return size;
        }
        if ((unsigned char)*p->at < 0x20)
            return SIZE_MAX;
        if (*p->at == '\\') {
            p->at++;
            if ((point = unescape(p)) < 0)
                return SIZE_MAX;
        } else {
            point = decode(p->at, (size_t)(p->end - p->at), &length);
            p->at += length;
        }
        char encoded[4];
        length = encode(point < 0 ? REPLACEMENT : point, encoded);
        if (to)
            memcpy(to + size, encoded, length);
        size += length;
    }
    return SIZE_MAX;
}

static bool parse_string(parser *p, gb_str *text) {
    if (!skip(p, '"'))
        return malformed(p);
    const char *begin = p->at;
    size_t size = unquote(p, NULL);
    if (size == SIZE_MAX)
        return malformed(p);
    char *to = arena_alloc(p->to, size + 1);
    if (!to) {
        p->status = GB_OUT_OF_MEMORY;
        return false;
    }
    p->at = begin;
    unquote(p, to);
    *text = (gb_str){to, size};
    return true;
}

static bool skip_digits(parser *p) {
    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > begin;
}

static bool parse_number(parser *p, gb_str *text) {
    const char *begin = p->at;
    skip(p, '-');
    if (!skip(p, '0') && !skip_digits(p))
        return malformed(p);
    if (skip(p, '.') && !skip_digits(p))
        return malformed(p);
    if (skip(p, 'e') || skip(p, 'E')) {
        if (!skip(p, '+'))
            skip(p, '-');
        if (!skip_digits(p))
            return malformed(p);
    }
    p->status = arena_text(p->to, (gb_str){begin, (size_t)(p->at - begin)}, text);
    return !p->status;
}

static bool parse_word(parser *p, const char *word) {
    for (; *word; word++)
        if (!skip(p, *word))
            return malformed(p);
    return true;
}

static bool parse_value(parser *p, gb_json *value);

/* parse_children reads the items of an array or the members of an object, behind the
 * opening bracket. */
static bool parse_children(parser *p, gb_json *parent, char closing) {
    if (++p->depth > GB_MAX_JSON_DEPTH)
        return malformed(p);
    skip_space(p);
    if (!skip(p, closing)) {
        gb_json **link = &parent->first;
        do {
            gb_json *child = *link = arena_alloc(p->to, sizeof *child);
            if (!child) {
                p->status = GB_OUT_OF_MEMORY;
                return false;
            }
            child->key = child->text = GB_STR("");
            skip_space(p);
            if (closing == '}') {
                if (!parse_string(p, &child->key))
                    return false;
                skip_space(p);
                if (!skip(p, ':'))
                    return malformed(p);
            }
            if (!parse_value(p, child))
                return false;
            parent->count++;
            link = &child->next;
            skip_space(p);
        } while (skip(p, ','));
        if (!skip(p, closing))
            return malformed(p);
    }
    p->depth--;
    return true;
}

static bool parse_value(parser *p, gb_json *value) {
    skip_space(p);
    if (p->at == p->end)
        return malformed(p);
    switch (*p->at) {
    case '{':
        p->at++;
        value->type = GB_JSON_OBJECT;
        return parse_children(p, value, '}');
    case '[':
        p->at++;
        value->type = GB_JSON_ARRAY;
        return parse_children(p, value, ']');
    case '"':
        value->type = GB_JSON_STRING;
        return parse_string(p, &value->text);
    case 't':
        value->truth = true;
        value->type = GB_JSON_BOOLEAN;
        return parse_word(p, "true");
    case 'f':
        value->type = GB_JSON_BOOLEAN;
        return parse_word(p, "false");
    case 'n':
        return parse_word(p, "null");
    default:
        value->type = GB_JSON_NUMBER;
        return parse_number(p, &value->text);
    }
}

static gb_status parse_json(arena *to, gb_str text, const gb_json **value) {
    parser p = {.to = to, .at = text.data, .end = text.data + text.size};
    gb_json *root = arena_alloc(to, sizeof *root);
    if (!root)
        return GB_OUT_OF_MEMORY;
    root->key = root->text = GB_STR("");
    if (!parse_value(&p, root))
        return p.status;
    skip_space(&p);
    if (p.at != p.end)
        return GB_MALFORMED;
    *value = root;
    return GB_OK;
}

gb_status gb_json_parse(gb_str text, const gb_json **value) {
    gb_mark before = gb_arena_mark();
    gb_status status = text.size ? parse_json(&kept, text, value) : GB_MALFORMED;
    if (status)
        gb_arena_release(before);
    return status;
}

gb_json_type gb_json_type_of(const gb_json *value) { return value ? value->type : GB_JSON_NULL; }

const gb_json *gb_json_first(const gb_json *value) { return value ? value->first : NULL; }

const gb_json *gb_json_next(const gb_json *item) { return item ? item->next : NULL; }

size_t gb_json_count(const gb_json *value) { return value ? value->count : 0; }

gb_str gb_json_key(const gb_json *member) { return member ? member->key : GB_STR(""); }

const gb_json *gb_json_get(const gb_json *value, const char *key) {
    const gb_json *found = NULL;
    if (gb_json_type_of(value) == GB_JSON_OBJECT)
        for (const gb_json *m = value->first; m; m = m->next)
            if (gb_str_equal(m->key, gb_str_of(key)))
                found = m;
    return found;
}

/* tell answers the found flag of an accessor. */
static bool tell(bool *found, bool is) {
    if (found)
        *found = is;
    return is;
}

gb_str gb_json_string(const gb_json *value, gb_str otherwise, bool *found) {
    return tell(found, gb_json_type_of(value) == GB_JSON_STRING) ? value->text : otherwise;
}

bool gb_json_boolean(const gb_json *value, bool otherwise, bool *found) {
    return tell(found, gb_json_type_of(value) == GB_JSON_BOOLEAN) ? value->truth : otherwise;
}

static bool integer_of(gb_str text, int64_t *value) {
    bool negative = text.data[0] == '-';
    uint64_t most = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX, n = 0;
    for (size_t i = negative; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (n > (most - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *value = negative ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

int64_t gb_json_integer(const gb_json *value, int64_t otherwise, bool *found) {
    int64_t n = otherwise;
    tell(found, gb_json_type_of(value) == GB_JSON_NUMBER && integer_of(value->text, &n));
    return n;
}

double gb_json_number(const gb_json *value, double otherwise, bool *found) {
    double n = gb_json_type_of(value) == GB_JSON_NUMBER ? strtod(value->text.data, NULL) : NAN;
    return tell(found, isfinite(n)) ? n : otherwise;
}

/* ---- The query ----------------------------------------------------------------- */

/* member_string and its neighbours read a member that may be absent or null; false
 * means that it is of another type. */
static bool member_string(const gb_json *object, const char *key, gb_str *text) {
    const gb_json *m = gb_json_get(object, key);
    bool found;
    *text = gb_json_string(m, GB_STR(""), &found);
    return found || gb_json_type_of(m) == GB_JSON_NULL;
}

static bool member_integer(const gb_json *object, const char *key, int64_t *value) {
    const gb_json *m = gb_json_get(object, key);
    bool found;
    *value = gb_json_integer(m, 0, &found);
    return found || gb_json_type_of(m) == GB_JSON_NULL;
}

static bool member_boolean(const gb_json *object, const char *key, bool *value) {
    const gb_json *m = gb_json_get(object, key);
    bool found;
    *value = gb_json_boolean(m, false, &found);
    return found || gb_json_type_of(m) == GB_JSON_NULL;
}

static bool member_time(const gb_json *object, const char *key, gb_time *value) {
    gb_str text;
    *value = (gb_time){0};
    return member_string(object, key, &text) && (!text.size || gb_time_parse(text, value));
}

/* parse_query returns the name of the field that is not as it should be, or NULL. */
static const char *parse_query(const gb_json *from, gb_query *q) {
    if (!member_string(from, "prompt", &q->prompt))
        return "prompt";
    if (!member_time(from, "from", &q->from))
        return "from";
    if (!member_time(from, "to", &q->to))
        return "to";
    if (!member_time(from, "now", &q->now))
        return "now";
    if (!member_string(from, "timezone", &q->timezone))
        return "timezone";
    if (!member_integer(from, "max_output_tokens", &q->max_output_tokens))
        return "max_output_tokens";
    if (!member_string(from, "subject", &q->subject))
        return "subject";
    q->config = gb_json_get(from, "config");
    if (gb_json_type_of(q->config) == GB_JSON_NULL)
        q->config = NULL;
    else if (gb_json_type_of(q->config) != GB_JSON_OBJECT)
        return "config";
    return NULL;
}

/* answer asks the author's function, and returns what the entry returns. */
static int32_t answer(void) {
    int32_t size = host_query_size();
    char *text = size >= 0 ? arena_alloc(&scratch, (size_t)size + 1) : NULL;
    if (!text) {
        gb_fail(GB_STR("read query: out_of_memory"));
        return 1;
    }
    int32_t got = host_query_read(text, (uint32_t)size);
    const gb_json *root = NULL;
    gb_status status = gb_json_parse((gb_str){text, got > 0 ? (size_t)got : 0}, &root);
    scratch_empty();
    const char *wrong = NULL;
    gb_query q = {0};
    if (!status && gb_json_type_of(root) != GB_JSON_OBJECT)
        status = GB_MALFORMED;
    if (!status && (wrong = parse_query(root, &q)))
        status = GB_MALFORMED;
    if (status) {
        gb_buffer why = {0};
        gb_buffer_add(&why, GB_STR("read query: "));
        if (wrong) {
            gb_buffer_add(&why, gb_str_of(wrong));
            gb_buffer_add(&why, GB_STR(" is "));
        }
        gb_buffer_add(&why, gb_str_of(gb_status_name(status)));
        gb_fail(gb_buffer_str(&why));
        gb_buffer_free(&why);
        return 1;
    }
    hand_answer(&q);
    return 0;
}

#ifdef __wasm__
__attribute__((export_name(GB_EXPORT_QUERY))) int32_t glovebox_query(void) { return answer(); }
#endif

gb_str gb_config_string(const gb_query *q, const char *key, gb_str otherwise, bool *found) {
    return gb_json_string(gb_json_get(q->config, key), otherwise, found);
}

int64_t gb_config_integer(const gb_query *q, const char *key, int64_t otherwise, bool *found) {
    return gb_json_integer(gb_json_get(q->config, key), otherwise, found);
}

double gb_config_number(const gb_query *q, const char *key, double otherwise, bool *found) {
    return gb_json_number(gb_json_get(q->config, key), otherwise, found);
}

bool gb_config_boolean(const gb_query *q, const char *key, bool otherwise, bool *found) {
    return gb_json_boolean(gb_json_get(q->config, key), otherwise, found);
}

const gb_json *gb_config_list(const gb_query *q, const char *key) {
    const gb_json *list = gb_json_get(q->config, key);
    if (gb_json_type_of(list) != GB_JSON_ARRAY)
        return NULL;
    for (const gb_json *i = list->first; i; i = i->next)
        if (i->type != GB_JSON_STRING)
            return NULL;
    return list;
}

/* ---- The answer ---------------------------------------------------------------- */

/* sized is what one call can name: a size is 32 bits there. */
static uint32_t sized(gb_str text) { return text.size < INT32_MAX ? (uint32_t)text.size : INT32_MAX; }

gb_status gb_reply(gb_str text) {
    int32_t code = host_reply(text.data, sized(text));
    return code < 0 ? status_of(code) : GB_OK;
}

void gb_fail(gb_str why) { host_fail(why.data, sized(why)); }

void gb_log(gb_level level, gb_str text) { host_log((int32_t)level, text.data, sized(text)); }

gb_status gb_replyf(const char *format, ...) {
    gb_buffer b = {0};
    va_list args;
    va_start(args, format);
    gb_buffer_addv(&b, format, args);
    va_end(args);
    gb_status status = b.status ? b.status : gb_reply(gb_buffer_str(&b));
    gb_buffer_free(&b);
    return status;
}

void gb_failf(const char *format, ...) {
    gb_buffer b = {0};
    va_list args;
    va_start(args, format);
    gb_buffer_addv(&b, format, args);
    va_end(args);
    /* A failure without its text is a failure still. */
    gb_fail(gb_buffer_str(&b));
    gb_buffer_free(&b);
}

void gb_logf(gb_level level, const char *format, ...) {
    gb_buffer b = {0};
    va_list args;
    va_start(args, format);
    gb_buffer_addv(&b, format, args);
    va_end(args);
    gb_log(level, gb_buffer_str(&b));
    gb_buffer_free(&b);
}

/* ---- Tokens -------------------------------------------------------------------- */

static int64_t quarters(int32_t point) {
    static const struct {
        int32_t first, last, quarters;
    } weights[] = {
#define EACH(first, last, quarters) {first, last, quarters},
        GB_WEIGHTS(EACH)
#undef EACH
    };
    for (size_t i = 0; i < sizeof weights / sizeof *weights && point >= weights[i].first; i++)
        if (point <= weights[i].last)
            return weights[i].quarters;
    return GB_PLAIN_QUARTERS;
}

int64_t gb_tokens(gb_str text) {
    int64_t sum = 0;
    for (size_t i = 0, length; i < text.size; i += length)
        sum += quarters(decode(text.data + i, text.size - i, &length));
    return (sum + GB_QUARTERS_PER_TOKEN - 1) / GB_QUARTERS_PER_TOKEN;
}

gb_str gb_tokens_cut(gb_str text, int64_t max) {
    if (max <= 0)
        return GB_STR("");
    int64_t left = max > INT64_MAX / GB_QUARTERS_PER_TOKEN ? INT64_MAX : max * GB_QUARTERS_PER_TOKEN;
    for (size_t i = 0, length; i < text.size; i += length) {
        left -= quarters(decode(text.data + i, text.size - i, &length));
        if (left < 0)
            return (gb_str){text.data, i};
    }
    return text;
}

/* ---- Capability calls ---------------------------------------------------------- */

/* What is sent. Its memory serves one call after the other. */
static gb_buffer request;

static void begin_request(void) { gb_buffer_clear(&request); }

static void put(const char *json) { gb_buffer_add(&request, gb_str_of(json)); }

/* put_string appends, say, ,"path":"2026". */
static void put_string(const char *before, gb_str value) {
    put(before);
    gb_buffer_add_json(&request, value);
}

static void put_integer(const char *before, int64_t value) {
    put(before);
    gb_buffer_add_int(&request, value);
}

/* put_body appends the raw bytes that follow the JSON. */
static void put_body(gb_str body) {
    put("\n");
    gb_buffer_add(&request, body);
}

/* send calls the host and returns the size of the result. */
static gb_status send(host_call *call, size_t *size) {
    if (request.status)
        return request.status;
    if (request.size > INT32_MAX)
        return GB_TOO_LARGE;
    int32_t code = call(request.data, (uint32_t)request.size);
    if (code < 0)
        return status_of(code);
    *size = (size_t)code;
    return GB_OK;
}

/* read_result copies the result of the last call. */
static size_t read_result(char *to, size_t size) {
    int32_t got = host_result_read(to, (uint32_t)size);
    return got < 0 ? 0 : (size_t)got < size ? (size_t)got : size;
}

/* exchange calls the host and puts the result into an arena, with a NUL behind it. */
static gb_status exchange(host_call *call, arena *to, gb_str *result) {
    size_t size;
    gb_status status = send(call, &size);
    if (status)
        return status;
    char *data = arena_alloc(to, size + 1);
    if (!data)
        return GB_OUT_OF_MEMORY;
    *result = (gb_str){data, read_result(data, size)};
    return GB_OK;
}

/* exchange_json calls the host for a result that is an object, which lies in scratch. */
static gb_status exchange_json(host_call *call, const gb_json **result) {
    gb_str text;
    gb_status status = exchange(call, &scratch, &text);
    if (status)
        return status;
    status = parse_json(&scratch, text, result);
    if (!status && gb_json_type_of(*result) != GB_JSON_OBJECT)
        status = GB_MALFORMED;
    return status;
}

/* finish gives back what a call needed, and if it failed what it left in the arena. */
static gb_status finish(gb_status status, gb_mark before) {
    scratch_empty();
    if (status)
        gb_arena_release(before);
    return status;
}

/* keep_string copies a member from scratch to where it stays. */
static gb_status keep_string(const gb_json *object, const char *key, gb_str *text) {
    gb_str value;
    return member_string(object, key, &value) ? arena_text(&kept, value, text) : GB_MALFORMED;
}

/* ---- files --------------------------------------------------------------------- */

static gb_status keep_file(const gb_json *from, gb_file *file) {
    gb_str type;
    if (gb_json_type_of(from) != GB_JSON_OBJECT || !member_string(from, "type", &type) ||
        !member_integer(from, "size", &file->size) || !member_time(from, "mtime", &file->modified))
        return GB_MALFORMED;
    file->type = gb_str_equal(type, GB_STR("file"))  ? GB_FILE
                 : gb_str_equal(type, GB_STR("dir")) ? GB_DIRECTORY
                                                     : GB_OTHER;
    return keep_string(from, "name", &file->name);
}

static gb_status keep_page(const gb_json *from, gb_file_page *page) {
    const gb_json *list = gb_json_get(from, "entries");
    if (!member_boolean(from, "more", &page->more))
        return GB_MALFORMED;
    gb_file *entries = arena_array(&kept, gb_json_count(list), sizeof *entries);
    if (!entries)
        return GB_OUT_OF_MEMORY;
    page->entries = entries;
    for (const gb_json *i = gb_json_first(list); i; i = gb_json_next(i)) {
        gb_status status = keep_file(i, &entries[page->count++]);
        if (status)
            return status;
    }
    return keep_file(gb_json_get(from, "self"), &page->self);
}

gb_status gb_files_list(gb_str root, gb_str path, gb_str after, int limit, gb_file_page *page) {
    gb_mark before = gb_arena_mark();
    begin_request();
    put_string("{\"root\":", root);
    put_string(",\"path\":", path);
    put_string(",\"after\":", after);
    put_integer(",\"limit\":", limit);
    put("}");
    const gb_json *result;
    gb_file_page got = {0};
    gb_status status = exchange_json(host_files_list, &result);
    if (!status)
        status = keep_page(result, &got);
    if (!status)
        *page = got;
    return finish(status, before);
}

gb_status gb_files_stat(gb_str root, gb_str path, gb_file *file) {
    gb_file_page page;
    gb_status status = gb_files_list(root, path, GB_STR(""), 1, &page);
    if (!status)
        *file = page.self;
    return status;
}

gb_status gb_files_read_at(gb_str root, gb_str path, int64_t offset, size_t length, gb_buffer *into) {
    if (into->status)
        return into->status;
    if (length > INT32_MAX)
        return GB_TOO_LARGE;
    begin_request();
    put_string("{\"root\":", root);
    put_string(",\"path\":", path);
    put_integer(",\"offset\":", offset);
    put_integer(",\"length\":", (int64_t)length);
    put("}");
    size_t size;
    gb_status status = send(host_files_read, &size);
    if (status)
        return status;
    char *to = buffer_room(into, size);
    if (!to)
        return into->status;
    buffer_took(into, read_result(to, size));
    return GB_OK;
}

gb_status gb_files_read(gb_str root, gb_str path, size_t limit, gb_buffer *into) {
    size_t begin = into->size;
    for (;;) {
        size_t had = into->size;
        gb_status status = gb_files_read_at(root, path, (int64_t)(had - begin), GB_FILE_PIECE_BYTES, into);
        if (!status && into->size - begin > limit)
            status = GB_TOO_LARGE;
        if (status) {
            gb_buffer_truncate(into, begin);
            return status;
        }
        if (into->size - had < GB_FILE_PIECE_BYTES)
            return GB_OK;
    }
}

/* ---- http ---------------------------------------------------------------------- */

static gb_status keep_head(const gb_json *head, gb_http_response *response) {
    int64_t code;
    const gb_json *list = gb_json_get(head, "header");
    if (gb_json_type_of(head) != GB_JSON_OBJECT || !member_integer(head, "status", &code) || code < 0 || code > 999 ||
        !member_boolean(head, "truncated", &response->truncated))
        return GB_MALFORMED;
    response->status = (int)code;
    gb_header *header = arena_array(&kept, gb_json_count(list), sizeof *header);
    if (!header)
        return GB_OUT_OF_MEMORY;
    response->header = header;
    for (const gb_json *i = gb_json_first(list); i; i = gb_json_next(i), response->header_count++) {
        const gb_json *name = gb_json_first(i), *value = gb_json_next(name);
        bool named, valued;
        gb_str texts[] = {gb_json_string(name, GB_STR(""), &named), gb_json_string(value, GB_STR(""), &valued)};
        if (!named || !valued)
            return GB_MALFORMED;
        if (arena_text(&kept, texts[0], &header->name) || arena_text(&kept, texts[1], &header->value))
            return GB_OUT_OF_MEMORY;
        header++;
    }
    return keep_string(head, "url", &response->url);
}

gb_status gb_http_fetch(const gb_http_request *r, gb_http_response *response) {
    gb_mark before = gb_arena_mark();
    begin_request();
    put_string("{\"method\":", r->method.size ? r->method : GB_STR("GET"));
    put_string(",\"url\":", r->url);
    put_integer(",\"timeout_ms\":", r->timeout_ms);
    put(",\"header\":[");
    for (size_t i = 0; i < r->header_count; i++) {
        put_string(i ? ",[" : "[", r->header[i].name);
        put_string(",", r->header[i].value);
        put("]");
    }
    put("]}");
    if (r->body.size)
        put_body(r->body);
    gb_str line, body;
    gb_http_response got = {0};
    gb_status status = exchange(host_http_fetch, &kept, &body);
    if (!status) {
        bool found;
        const gb_json *head = NULL;
        line = gb_str_cut(&body, '\n', &found);
        status = found && line.size ? parse_json(&scratch, line, &head) : GB_MALFORMED;
        if (!status)
            status = keep_head(head, &got);
        got.body = body;
    }
    if (!status)
        *response = got;
    return finish(status, before);
}

gb_str gb_http_header(const gb_http_response *response, const char *name, gb_str otherwise) {
    size_t size = strlen(name);
    for (size_t i = 0; i < response->header_count; i++) {
        gb_str other = response->header[i].name;
        size_t same = 0;
        while (same < size && same < other.size) {
            char a = name[same], b = other.data[same];
            a = a >= 'A' && a <= 'Z' ? (char)(a + 32) : a;
            b = b >= 'A' && b <= 'Z' ? (char)(b + 32) : b;
            if (a != b)
                break;
            same++;
        }
        if (same == size && same == other.size)
            return response->header[i].value;
    }
    return otherwise;
}

/* ---- kv ------------------------------------------------------------------------ */

static void begin_key(gb_str key) {
    begin_request();
    put_string("{\"key\":", key);
    put("}");
}

gb_status gb_kv_get(gb_str key, gb_str *value) {
    begin_key(key);
    gb_mark before = gb_arena_mark();
    gb_str got;
    gb_status status = exchange(host_kv_get, &kept, &got);
    if (!status)
        *value = got;
    return finish(status, before);
}

gb_status gb_kv_set(gb_str key, gb_str value) {
    begin_key(key);
    put_body(value);
    size_t size;
    return send(host_kv_set, &size);
}

gb_status gb_kv_delete(gb_str key) {
    begin_key(key);
    size_t size;
    return send(host_kv_delete, &size);
}

static gb_status keep_keys(const gb_json *from, gb_key_page *page) {
    const gb_json *list = gb_json_get(from, "keys");
    if (!member_boolean(from, "more", &page->more))
        return GB_MALFORMED;
    gb_str *keys = arena_array(&kept, gb_json_count(list), sizeof *keys);
    if (!keys)
        return GB_OUT_OF_MEMORY;
    page->keys = keys;
    for (const gb_json *i = gb_json_first(list); i; i = gb_json_next(i), page->count++) {
        if (i->type != GB_JSON_STRING)
            return GB_MALFORMED;
        gb_status status = arena_text(&kept, i->text, &keys[page->count]);
        if (status)
            return status;
    }
    return GB_OK;
}

gb_status gb_kv_list(gb_str prefix, gb_str after, int limit, gb_key_page *page) {
    gb_mark before = gb_arena_mark();
    begin_request();
    put_string("{\"prefix\":", prefix);
    put_string(",\"after\":", after);
    put_integer(",\"limit\":", limit);
    put("}");
    const gb_json *result;
    gb_key_page got = {0};
    gb_status status = exchange_json(host_kv_list, &result);
    if (!status)
        status = keep_keys(result, &got);
    if (!status)
        *page = got;
    return finish(status, before);
}

/* ---- llm ----------------------------------------------------------------------- */

gb_status gb_llm_complete(const gb_llm_request *r, gb_llm_response *response) {
    gb_mark before = gb_arena_mark();
    begin_request();
    put_string("{\"system\":", r->system);
    put_string(",\"prompt\":", r->prompt);
    put_integer(",\"max_output_tokens\":", r->max_output_tokens);
    put("}");
    const gb_json *result;
    gb_llm_response got = {0};
    gb_status status = exchange_json(host_llm_complete, &result);
    if (!status && (!member_integer(result, "input_tokens", &got.input_tokens) ||
                    !member_integer(result, "output_tokens", &got.output_tokens)))
        status = GB_MALFORMED;
    if (!status)
        status = keep_string(result, "text", &got.text);
    if (!status)
        *response = got;
    return finish(status, before);
}

/* ---- The host of a native test ------------------------------------------------- */

#ifndef __wasm__

static struct {
    const gb_native_host *host;
    gb_str query;
    bool failed;
    gb_buffer reply, failure, log, result;
} native;

/* copied is how many bytes a read call hands over. */
static int32_t copied(gb_str from, void *to, uint32_t capacity) {
    size_t size = from.size < capacity ? from.size : capacity;
    if (size)
        memcpy(to, from.data, size);
    return (int32_t)size;
}

static int32_t host_query_size(void) { return (int32_t)sized(native.query); }

static int32_t host_query_read(void *to, uint32_t capacity) { return copied(native.query, to, capacity); }

static int32_t host_reply(const void *text, uint32_t size) {
    gb_buffer_add(&native.reply, (gb_str){text, size});
    return 0;
}

static void host_fail(const void *text, uint32_t size) {
    native.failed = true;
    gb_buffer_clear(&native.failure);
    gb_buffer_add(&native.failure, (gb_str){text, size < GB_MAX_FAILURE_BYTES ? size : GB_MAX_FAILURE_BYTES});
}

static void host_log(int32_t level, const void *text, uint32_t size) {
    gb_buffer_add_int(&native.log, level);
    gb_buffer_add(&native.log, GB_STR(" "));
    gb_buffer_add(&native.log, (gb_str){text, size});
    gb_buffer_add(&native.log, GB_STR("\n"));
}

static int32_t host_result_read(void *to, uint32_t capacity) {
    return copied(gb_buffer_str(&native.result), to, capacity);
}

static int32_t native_call(gb_native_call *call, const void *data, uint32_t size) {
    gb_buffer_clear(&native.result);
    if (!call)
        return GB_NOT_GRANTED;
    gb_str result = GB_STR("");
    gb_status status = call(native.host->context, (gb_str){data, size}, &result);
    if (status)
        return status < 0 ? status : GB_UNAVAILABLE;
    gb_buffer_add(&native.result, result);
    return (int32_t)native.result.size;
}

#define NATIVE(name) \
    static int32_t host_##name(const void *data, uint32_t size) { \
        return native_call(native.host ? native.host->name : NULL, data, size); \
    }
NATIVE(files_list)
NATIVE(files_read)
NATIVE(http_fetch)
NATIVE(kv_get)
NATIVE(kv_set)
NATIVE(kv_delete)
NATIVE(kv_list)
NATIVE(llm_complete)

gb_native_outcome gb_native_run(gb_str query, const gb_native_host *host) {
    gb_arena_release((gb_mark){0});
    native.host = host;
    native.query = query;
    native.failed = false;
    gb_buffer_clear(&native.reply);
    gb_buffer_clear(&native.failure);
    gb_buffer_clear(&native.log);
    bool answered = answer() == 0;
    return (gb_native_outcome){
        .failed = native.failed || !answered,
        .reply = gb_buffer_str(&native.reply),
        .failure = gb_buffer_str(&native.failure),
        .log = gb_buffer_str(&native.log),
    };
}

#endif
