/* The sample hand in C: it does what its prompt says, to try everything that the SDK
 * offers. abi/conformance/SAMPLE.md says what each command gives. */
#include <math.h>

#include "glovebox.h"

static const gb_str root = {"docs", 4};

/* What a command comes to. DONE wrote its text, which may be empty; QUIET has none, not
 * even a line. */
typedef enum outcome { DONE, QUIET, FAILED } outcome;

typedef struct answer {
    const gb_query *query;
    gb_buffer text;
} answer;

static void add(answer *a, gb_str text) { gb_buffer_add(&a->text, text); }

static void add_c(answer *a, const char *text) { add(a, gb_str_of(text)); }

static outcome said(answer *a, gb_str text) {
    add(a, text);
    return DONE;
}

static outcome error(answer *a, const char *what, gb_str of) {
    add_c(a, "error: ");
    add_c(a, what);
    return said(a, of);
}

static outcome failed(answer *a, gb_status status) { return error(a, gb_status_name(status), GB_STR("")); }

static outcome said_if_text(answer *a, gb_str bytes) {
    return gb_is_text(bytes) ? said(a, bytes) : error(a, "not text", GB_STR(""));
}

static void add_time(answer *a, gb_time time) {
    char text[GB_TIME_SIZE];
    gb_time_format(time, text);
    add_c(a, text);
}

/* ---- The commands --------------------------------------------------------------- */

static outcome say(answer *a, gb_str text) { return said(a, text); }

static outcome query(answer *a) {
    const gb_query *q = a->query;
    add_c(a, "from=");
    add_time(a, q->from);
    add_c(a, "\nto=");
    add_time(a, q->to);
    add_c(a, "\nnow=");
    add_time(a, q->now);
    add_c(a, "\ntimezone=");
    add(a, q->timezone);
    add_c(a, "\nmax_output_tokens=");
    gb_buffer_add_int(&a->text, q->max_output_tokens);
    add_c(a, "\nsubject=");
    return said(a, q->subject);
}

/* add_key begins the line of a configuration key. */
static void add_key(answer *a, const char *key, int *lines) {
    add_c(a, (*lines)++ ? "\n" : "");
    add_c(a, key);
    add_c(a, "=");
}

static outcome config(answer *a) {
    const gb_query *q = a->query;
    int lines = 0;
    bool found;
    gb_str greeting = gb_config_string(q, "greeting", GB_STR(""), &found);
    if (found) {
        add_key(a, "greeting", &lines);
        add(a, greeting);
    }
    bool loud = gb_config_boolean(q, "loud", false, &found);
    if (found) {
        add_key(a, "loud", &lines);
        add_c(a, loud ? "true" : "false");
    }
    double ratio = gb_config_number(q, "ratio", 0, &found);
    if (found) {
        add_key(a, "ratio", &lines);
        gb_buffer_add_int(&a->text, (int64_t)round(ratio * 1000));
        add_c(a, "/1000");
    }
    int64_t times = gb_config_integer(q, "times", 0, &found);
    if (found) {
        add_key(a, "times", &lines);
        gb_buffer_add_int(&a->text, times);
    }
    const gb_json *words = gb_config_list(q, "words");
    if (words) {
        add_key(a, "words", &lines);
        for (const gb_json *w = gb_json_first(words); w; w = gb_json_next(w)) {
            add_c(a, w == gb_json_first(words) ? "" : ",");
            add(a, gb_json_string(w, GB_STR(""), NULL));
        }
    }
    return lines ? DONE : QUIET;
}

static outcome log_line(answer *a, gb_str level, gb_str text) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (int i = GB_DEBUG; i <= GB_ERROR; i++)
        if (gb_str_equal(level, gb_str_of(names[i]))) {
            gb_log((gb_level)i, text);
            return QUIET;
        }
    return error(a, "bad arguments for log", GB_STR(""));
}

static outcome fail(gb_str text) {
    gb_fail(text);
    return FAILED;
}

static outcome tokens(answer *a, gb_str text) {
    gb_buffer_add_int(&a->text, gb_tokens(text));
    return DONE;
}

static outcome cut(answer *a, gb_str count, gb_str text) {
    int64_t n = 0;
    for (size_t i = 0; i < count.size; i++) {
        if (count.size > 9 || count.data[i] < '0' || count.data[i] > '9')
            return error(a, "bad arguments for cut", GB_STR(""));
        n = n * 10 + (count.data[i] - '0');
    }
    return said(a, gb_tokens_cut(text, n));
}

static void add_file(answer *a, const gb_file *file) {
    add_c(a, file->type == GB_FILE ? "file " : file->type == GB_DIRECTORY ? "dir " : "other ");
    gb_buffer_add_int(&a->text, file->size);
    add_c(a, " ");
    add_time(a, file->modified);
    add_c(a, " ");
    add(a, file->name);
}

static outcome list(answer *a, gb_str path) {
    gb_file_page page;
    gb_str after = GB_STR("");
    size_t begin = a->text.size, lines = 0;
    do {
        gb_status status = gb_files_list(root, path, after, 0, &page);
        if (status) {
            gb_buffer_truncate(&a->text, begin); /* the pages before it are no answer */
            return failed(a, status);
        }
        if (page.self.type != GB_DIRECTORY) {
            add_file(a, &page.self);
            return DONE;
        }
        for (size_t i = 0; i < page.count; i++) {
            add_c(a, lines++ ? "\n" : "");
            add_file(a, &page.entries[i]);
            after = page.entries[i].name;
        }
    } while (page.more && page.count);
    return lines ? DONE : QUIET;
}

static outcome read(answer *a, gb_str path) {
    gb_buffer file = {0};
    gb_status status = gb_files_read(root, path, SIZE_MAX, &file);
    outcome o = status ? failed(a, status) : said_if_text(a, gb_buffer_str(&file));
    gb_buffer_free(&file);
    return o;
}

/* Only a piece is in memory at a time. */
static outcome size(answer *a, gb_str path) {
    gb_buffer piece = {0};
    gb_status status;
    int64_t total = 0;
    do {
        gb_buffer_clear(&piece);
        status = gb_files_read_at(root, path, total, GB_FILE_PIECE_BYTES, &piece);
        total += (int64_t)piece.size;
    } while (!status && piece.size == GB_FILE_PIECE_BYTES);
    gb_buffer_free(&piece);
    if (status)
        return failed(a, status);
    gb_buffer_add_int(&a->text, total);
    return DONE;
}

static outcome fetch(answer *a, const gb_http_request *request) {
    gb_http_response response;
    gb_status status = gb_http_fetch(request, &response);
    if (status)
        return failed(a, status);
    if (!gb_is_text(response.body))
        return error(a, "not text", GB_STR(""));
    gb_buffer_add_int(&a->text, response.status);
    add_c(a, " ");
    add(a, gb_http_header(&response, "X-Answer", GB_STR("-")));
    add_c(a, " ");
    add(a, response.body);
    add_c(a, response.truncated ? " (cut)" : "");
    return DONE;
}

static outcome get(answer *a, gb_str url) { return fetch(a, &(gb_http_request){.url = url}); }

static outcome post(answer *a, gb_str url, gb_str text) {
    gb_header plain = {GB_STR("Content-Type"), GB_STR("text/plain")};
    return fetch(a, &(gb_http_request){.method = GB_STR("POST"),
                                       .url = url,
                                       .header = &plain,
                                       .header_count = 1,
                                       .body = text,
                                       .timeout_ms = 2000});
}

static outcome ok(answer *a, gb_status status) { return status ? failed(a, status) : said(a, GB_STR("ok")); }

static outcome kv_get(answer *a, gb_str key) {
    gb_str value;
    gb_status status = gb_kv_get(key, &value);
    return status ? failed(a, status) : said_if_text(a, value);
}

static outcome kv_list(answer *a, gb_str prefix) {
    gb_key_page page;
    gb_str after = GB_STR("");
    size_t begin = a->text.size, lines = 0;
    do {
        gb_status status = gb_kv_list(prefix, after, 0, &page);
        if (status) {
            gb_buffer_truncate(&a->text, begin);
            return failed(a, status);
        }
        for (size_t i = 0; i < page.count; i++) {
            add_c(a, lines++ ? "\n" : "");
            add(a, after = page.keys[i]);
        }
    } while (page.more && page.count);
    return lines ? DONE : QUIET;
}

static outcome ask(answer *a, gb_str text) {
    gb_llm_request request = {GB_STR("Answer in one sentence."), text, 64};
    gb_llm_response response;
    gb_status status = gb_llm_complete(&request, &response);
    if (status)
        return failed(a, status);
    add(a, response.text);
    add_c(a, " (");
    gb_buffer_add_int(&a->text, response.input_tokens);
    add_c(a, "+");
    gb_buffer_add_int(&a->text, response.output_tokens);
    add_c(a, " tokens)");
    return DONE;
}

/* ---- The prompt ------------------------------------------------------------------ */

static outcome run(answer *a, gb_str line) {
    gb_str rest = line;
    bool more;
    gb_str word = gb_str_cut(&rest, ' ', &more);
#define IS(name) gb_str_equal(word, GB_STR(name))
    if (IS("say"))
        return say(a, rest);
    if (IS("query") && !more)
        return query(a);
    if (IS("config") && !more)
        return config(a);
    if (IS("fail"))
        return fail(rest);
    if (IS("tokens"))
        return tokens(a, rest);
    if (IS("list"))
        return list(a, rest);
    if (IS("read"))
        return read(a, rest);
    if (IS("size"))
        return size(a, rest);
    if (IS("kv-list"))
        return kv_list(a, rest);
    if (IS("ask"))
        return ask(a, rest);
    if (IS("get") && rest.size)
        return get(a, rest);
    if (IS("kv-get") && rest.size)
        return kv_get(a, rest);
    if (IS("kv-delete") && rest.size)
        return ok(a, gb_kv_delete(rest));
    if (IS("log") || IS("cut") || IS("post") || IS("kv-set")) {
        gb_str first = gb_str_cut(&rest, ' ', &more);
        if (IS("log"))
            return log_line(a, first, rest);
        if (IS("cut") && first.size)
            return cut(a, first, rest);
        if (IS("post") && first.size)
            return post(a, first, rest);
        if (IS("kv-set") && first.size && more)
            return ok(a, gb_kv_set(first, rest));
    }
    static const char *const words[] = {"query", "config", "get", "kv-get", "kv-delete", "cut", "post", "kv-set"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (gb_str_equal(word, gb_str_of(words[i])))
            return error(a, "bad arguments for ", word);
    return error(a, "unknown command ", word);
}

void hand_answer(const gb_query *q) {
    answer a = {.query = q};
    gb_str prompt = q->prompt;
    bool quiet = true, more = prompt.size > 0;
    while (more) {
        gb_str line = gb_str_cut(&prompt, '\n', &more);
        more = more && prompt.size; /* the last line needs no LF, and has none behind it */
        size_t before = a.text.size;
        if (!quiet)
            add_c(&a, "\n");
        switch (run(&a, line)) {
        case FAILED:
            return;
        case QUIET:
            gb_buffer_truncate(&a.text, before);
            break;
        case DONE:
            quiet = false;
        }
    }
    if (a.text.status)
        gb_fail(gb_str_of(gb_status_name(a.text.status)));
    else
        gb_reply(gb_tokens_cut(gb_buffer_str(&a.text), q->max_output_tokens));
}
