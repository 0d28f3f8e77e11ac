/* Asks the SDK, compiled natively, what a test sends on standard input, and answers on
 * standard output. A frame is a letter, a size of four bytes in the machine's order,
 * and so many bytes.
 *
 *     t TEXT        gb_tokens
 *     c MAX TEXT    gb_tokens_cut; MAX has eight bytes
 *     p TEXT        gb_time_parse, "SECONDS NANOS" or "no"
 *     f SECONDS     gb_time_format, eight bytes, or "no"
 *     j TEXT        gb_json_parse, written again, or the name of the status
 *     w TEXT        gb_buffer_add_json, or the name of the status
 *     q QUERY       a query to the hand that is linked in: an h for each call of the host
 *                   (NAME, LF, request), which wants an s (a status of four bytes, and the
 *                   result); then l, the log, and r, the reply, or x, the failure */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glovebox.h"

static char *input;

static bool receive(char *letter, gb_str *payload) {
    uint32_t size;
    if (fread(letter, 1, 1, stdin) != 1 || fread(&size, sizeof size, 1, stdin) != 1)
        return false;
    /* In a block of its own and of its size, so that a read behind it is seen. */
    free(input);
    if (!(input = malloc(size ? size : 1)) || fread(input, 1, size, stdin) != size)
        abort();
    *payload = (gb_str){input, size};
    return true;
}

static void send(char letter, gb_str payload) {
    uint32_t size = (uint32_t)payload.size;
    fwrite(&letter, 1, 1, stdout);
    fwrite(&size, sizeof size, 1, stdout);
    fwrite(payload.data, 1, payload.size, stdout);
    fflush(stdout);
}

/* copied keeps what is received next from overwriting a text that is in use. */
static gb_str copied(gb_str text) {
    char *data = malloc(text.size ? text.size : 1);
    if (!data)
        abort();
    memcpy(data, text.data, text.size);
    return (gb_str){data, text.size};
}

static int64_t eight_bytes(gb_str *payload) {
    int64_t n = 0;
    if (payload->size < sizeof n)
        abort();
    memcpy(&n, payload->data, sizeof n);
    *payload = (gb_str){payload->data + sizeof n, payload->size - sizeof n};
    return n;
}

static gb_status call(const char *name, gb_str request, gb_str *result) {
    gb_buffer frame = {0};
    gb_buffer_addf(&frame, "%s\n", name);
    gb_buffer_add(&frame, request);
    send('h', gb_buffer_str(&frame));
    gb_buffer_free(&frame);
    char letter;
    int32_t status;
    if (!receive(&letter, result) || letter != 's' || result->size < sizeof status)
        abort();
    memcpy(&status, result->data, sizeof status);
    *result = (gb_str){result->data + sizeof status, result->size - sizeof status};
    return (gb_status)status;
}

#define CALL(name) \
    static gb_status name(void *context, gb_str request, gb_str *result) { \
        (void)context; \
        return call(#name, request, result); \
    }
CALL(files_list)
CALL(files_read)
CALL(http_fetch)
CALL(kv_get)
CALL(kv_set)
CALL(kv_delete)
CALL(kv_list)
CALL(llm_complete)

static const gb_native_host host = {NULL,  files_list, files_read, http_fetch, kv_get,
                                    kv_set, kv_delete,  kv_list,    llm_complete};

static void write_json(gb_buffer *b, const gb_json *value) {
    bool truth, is_integer, is_number;
    int64_t integer;
    double number;
    const char *sep = "";
    switch (gb_json_type_of(value)) {
    case GB_JSON_NULL:
        gb_buffer_add(b, GB_STR("null"));
        break;
    case GB_JSON_BOOLEAN:
        truth = gb_json_boolean(value, false, NULL);
        gb_buffer_add(b, truth ? GB_STR("true") : GB_STR("false"));
        break;
    case GB_JSON_NUMBER:
        integer = gb_json_integer(value, 0, &is_integer);
        number = gb_json_number(value, 0, &is_number);
        if (is_integer)
            gb_buffer_add_int(b, integer);
        else if (is_number)
            gb_buffer_addf(b, "%.17e", number);
        else
            gb_buffer_add(b, GB_STR("\"beyond\""));
        break;
    case GB_JSON_STRING:
        gb_buffer_add_json(b, gb_json_string(value, GB_STR(""), NULL));
        break;
    case GB_JSON_ARRAY:
        gb_buffer_add(b, GB_STR("["));
        for (const gb_json *i = gb_json_first(value); i; i = gb_json_next(i), sep = ",") {
            gb_buffer_add(b, gb_str_of(sep));
            write_json(b, i);
        }
        gb_buffer_add(b, GB_STR("]"));
        break;
    case GB_JSON_OBJECT:
        gb_buffer_add(b, GB_STR("{"));
        for (const gb_json *m = gb_json_first(value); m; m = gb_json_next(m), sep = ",") {
            gb_buffer_add(b, gb_str_of(sep));
            gb_buffer_add_json(b, gb_json_key(m));
            gb_buffer_add(b, GB_STR(":"));
            write_json(b, m);
        }
        gb_buffer_add(b, GB_STR("}"));
        break;
    }
}

static void serve(char letter, gb_str payload) {
    gb_buffer answer = {0};
    gb_mark before = gb_arena_mark();
    char text[GB_TIME_SIZE];
    gb_time time;
    gb_status status;
    const gb_json *json;
    gb_native_outcome outcome;
    int64_t n;
    switch (letter) {
    case 't':
        gb_buffer_add_int(&answer, gb_tokens(payload));
        break;
    case 'c':
        n = eight_bytes(&payload);
        gb_buffer_add(&answer, gb_tokens_cut(payload, n));
        break;
    case 'p':
        if (gb_time_parse(payload, &time))
            gb_buffer_addf(&answer, "%lld %d", (long long)time.seconds, time.nanos);
        else
            gb_buffer_add(&answer, GB_STR("no"));
        break;
    case 'f':
        time = (gb_time){eight_bytes(&payload), 0};
        gb_buffer_add(&answer, gb_str_of(gb_time_format(time, text) ? text : "no"));
        break;
    case 'j':
        if ((status = gb_json_parse(payload, &json)))
            gb_buffer_add(&answer, gb_str_of(gb_status_name(status)));
        else
            write_json(&answer, json);
        break;
    case 'w':
        gb_buffer_add_json(&answer, payload);
        if ((status = answer.status)) {
            gb_buffer_clear(&answer);
            gb_buffer_add(&answer, gb_str_of(gb_status_name(status)));
        }
        break;
    case 'q':
        payload = copied(payload);
        outcome = gb_native_run(payload, &host);
        free((void *)payload.data);
        send('l', outcome.log);
        send(outcome.failed ? 'x' : 'r', outcome.failed ? outcome.failure : outcome.reply);
        return;
    default:
        abort();
    }
    if (answer.status)
        abort();
    send('a', gb_buffer_str(&answer));
    gb_buffer_free(&answer);
    gb_arena_release(before);
}

int main(void) {
    char letter;
    gb_str payload;
    while (receive(&letter, &payload))
        serve(letter, payload);
    free(input);
    return 0;
}
