/* A hand without an SDK: any program for WASI that reads the query from standard input
 * and writes the reply to standard output. Standard error and an exit code tell of a
 * failure. The query is the JSON object of abi/ABI.md §3; this program needs one field. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *at; /* what is read next; the text ends with a NUL */

static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void skip_space(void) { at += strspn(at, " \t\r\n"); }

static unsigned hex4(void) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = *at ? strchr(digits, *at++) : NULL;
        if (!digit)
            fail("the query has a bad escape");
        value = value * 16 + (unsigned)(digit - digits) % 16;
    }
    return value;
}

static char *put(char *to, unsigned point) {
    if (point < 0x80) {
        *to++ = (char)point;
    } else if (point < 0x800) {
        *to++ = (char)(0xC0 | point >> 6);
        *to++ = (char)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (char)(0xE0 | point >> 12);
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    } else {
        *to++ = (char)(0xF0 | point >> 18);
        *to++ = (char)(0x80 | (point >> 12 & 0x3F));
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    }
    return to;
}

/* escape reads what stands behind a backslash. Half of a surrogate pair is U+FFFD. */
static char *escape(char *to) {
    const char *names = "\"\\/bfnrt", *values = "\"\\/\b\f\n\r\t", *name = *at ? strchr(names, *at) : NULL;
    if (name) {
        at++;
        *to++ = values[name - names];
        return to;
    }
    if (*at++ != 'u')
        fail("the query has a bad escape");
    unsigned point = hex4();
    if (point >= 0xD800 && point <= 0xDBFF && at[0] == '\\' && at[1] == 'u') {
        const char *behind = at;
        at += 2;
        unsigned low = hex4();
        if (low >= 0xDC00 && low <= 0xDFFF)
            return put(to, 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00));
        at = behind;
    }
    return put(to, point >= 0xD800 && point <= 0xDFFF ? 0xFFFD : point);
}

/* string reads a string. Unescaped it is never longer than it was. */
static char *string(void) {
    if (*at++ != '"')
        fail("the query has no string where one has to be");
    char *text = malloc(strlen(at) + 1), *to = text;
    if (!text)
        fail("out of memory");
    while (*at != '"') {
        if (!*at)
            fail("the query ends inside a string");
        if (*at == '\\') {
            at++;
            to = escape(to);
        } else {
            *to++ = *at++;
        }
    }
    at++;
    *to = 0;
    return text;
}

/* skip_value moves behind a value, whatever it is. */
static void skip_value(void) {
    int depth = 0;
    do {
        skip_space();
        if (*at == '"') {
            free(string());
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            size_t size = strcspn(at, " \t\r\n\"{}[],:");
            if (!size)
                fail("the query ends inside a value");
            at += size;
        }
    } while (depth > 0);
}

int main(void) {
    static char query[1 << 20];
    size_t size = fread(query, 1, sizeof query - 1, stdin);
    query[size] = 0;
    at = query;
    skip_space();
    if (*at++ != '{')
        fail("the query is no JSON object");
    char *prompt = NULL;
    for (skip_space(); *at == '"' || *at == ','; skip_space()) {
        if (*at == ',') {
            at++;
            continue;
        }
        char *key = string();
        skip_space();
        if (*at++ != ':')
            fail("the query has a field without a value");
        skip_space();
        if (!strcmp(key, "prompt"))
            prompt = string();
        else
            skip_value();
        free(key);
    }
    if (!prompt)
        fail("the query has no prompt");
    if (*prompt) /* an empty reply means that there is nothing to say */
        printf("You asked: %s", prompt);
    return 0;
}
