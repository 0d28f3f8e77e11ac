/* The hand of TestIsolation in C: it dirties what it can, or reads all that it can.
 * What it is asked, and what it answers, is said there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "glovebox.h"

/* The upper half of every word that is left behind. Code has it as a number alone:
 * no memory holds it before somebody is asked to be dirty. */
#define MARK 0x5ca1ab1eu

static uint64_t data[128] = {1, 2, 3, [127] = 4};
static uint64_t bss[4096];
static volatile double real = 1.5;
static volatile float shorter = 2.5f;
static volatile int initial = 42;
static const char *volatile words = "as it was";
static uint64_t *heap[32];
enum { heap_words = 512 };

static uint64_t pages(void) { return __builtin_wasm_memory_size(0); }
static void fill(volatile uint64_t *to, size_t n, uint64_t word) {
	for (size_t i = 0; i < n; i++)
		to[i] = word;
}
static bool holds(const volatile uint64_t *at, size_t n, uint64_t word) {
	for (size_t i = 0; i < n; i++)
		if (at[i] != word)
			return false;
	return true;
}

/* Fills frames of the stack, and comes back. */
static __attribute__((noinline)) uint64_t dirty_stack(int depth, uint64_t word) {
	volatile uint64_t frame[128];
	fill(frame, 128, word);
	return depth ? frame[0] ^ dirty_stack(depth - 1, word) ^ frame[depth % 128] : word;
}

static __attribute__((noinline)) uint64_t forever(uint64_t word) {
	volatile uint64_t frame[8];
	fill(frame, 8, word);
	return frame[3] ^ forever(word) ^ frame[5];
}

static void dirty_heap(uint64_t word) {
	for (size_t i = 0; i < 32; i++)
		if ((heap[i] = malloc(heap_words * 8)) != NULL)
			fill(heap[i], heap_words, word);
	for (size_t i = 0; i < 32; i += 2) {
		free(heap[i]);
		heap[i] = NULL;
	}
}

/* Takes up to so many pages and fills them. */
static void grow(uint64_t most, uint64_t word) {
	for (uint64_t i = 0; i < most; i++) {
		uint64_t from = pages() << 16;
		if (__builtin_wasm_memory_grow(0, 1) == (size_t)-1)
			return;
		fill((volatile uint64_t *)(uintptr_t)from, 65536 / 8, word);
	}
}

static bool kept(uint64_t word) {
	for (size_t i = 1; i < 32; i += 2)
		if (heap[i] != NULL && !holds(heap[i], heap_words, word))
			return false;
	return holds(data, 128, word) && holds(bss, 4096, word) && initial == (int)word;
}

static void ask(const char *path) {
	gb_buffer got = {0};
	gb_files_read_at(GB_STR("isolation"), gb_str_of(path), 0, 1, &got);
}

static void dirty(uint64_t word, char mode) {
	fill(data, 128, word);
	fill(bss, 4096, word);
	real = (double)(word & 0xffff);
	shorter = (float)(word & 0xffff);
	initial = (int)word;
	errno = (int)word;
	srand((unsigned)word);
	words = (const char *)bss;
	setvbuf(stderr, malloc(4096), _IOFBF, 4096);
	fwrite(bss, 8, 16, stderr); /* is never flushed */
	if (mode == 'h')
		__builtin_trap();
	dirty_heap(word);
	dirty_stack(100, word);
	grow(mode == 'g' || mode == 'b' ? 1 << 16 : 2, word);
	switch (mode) {
	case 't':
	case 'b':
		__builtin_trap();
	case 'l':
		for (;;)
			bss[word & 7] = word;
	case 'e':
		_Exit(7);
	case 'r':
		forever(word);
		break;
	case 'f':
		gb_failf("asked to");
		return;
	case 's':
		for (;;)
			nanosleep(&(struct timespec){.tv_sec = 3600}, NULL);
	case 'c':
		ask("cancel");
		for (;;)
			bss[word & 7] = word;
	case 'p':
		ask("panic");
		break;
	case 'w':
		ask("pause");
	}
	if (!kept(word)) {
		gb_failf("it does not hold what it wrote");
		return;
	}
	gb_replyf("kept %016llx", (unsigned long long)word);
}

static uint64_t marks, where, what;

static uint64_t scan(uint64_t from, uint64_t to, uint64_t *other) {
	uint64_t hash = 14695981039346656037u, n = 0;
	for (uint64_t at = from; at < to; at += 8) {
		uint64_t word = *(const volatile uint64_t *)(uintptr_t)at;
		hash = (hash ^ word) * 1099511628211u;
		n += word != 0;
		if (word >> 32 == MARK && marks++ == 0) {
			where = at;
			what = word;
		}
	}
	*other = n;
	return hash;
}

static void read_all(void) {
	volatile char here;
	uint64_t first = pages(), nonzero, grown;
	uint64_t hash = scan(8, first << 16, &nonzero);
	while (__builtin_wasm_memory_grow(0, 1) != (size_t)-1)
		;
	scan(first << 16, pages() << 16, &nonzero);
	grown = pages() - first;
	gb_replyf("%016llx %016llx %016llx %016llx %016llx %016llx %016llx %016llx", (unsigned long long)first, (unsigned long long)hash,
		(unsigned long long)grown, (unsigned long long)nonzero, (unsigned long long)marks, (unsigned long long)where, (unsigned long long)what,
		(unsigned long long)(uintptr_t)&here);
}

static void world(void) {
	uint64_t random[2];
	struct timespec now, since;
	getentropy(random, sizeof random);
	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_MONOTONIC, &since);
	gb_replyf("%lld %lld %016llx%016llx", now.tv_sec * 1000000000ll + now.tv_nsec, since.tv_sec * 1000000000ll + since.tv_nsec,
		(unsigned long long)random[0], (unsigned long long)random[1]);
}

void hand_answer(const gb_query *q) {
	switch (q->prompt.data[0]) {
	case 'd':
		dirty(strtoull(q->prompt.data + 6, NULL, 16), q->prompt.data[23]);
		break;
	case 'r':
		read_all();
		break;
	case 'w':
		world();
	}
}
