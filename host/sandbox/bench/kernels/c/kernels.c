// The kernels whose metering is measured. Each is exported under its name, takes
// how often to do its work, and returns a checksum; ../go/main.go computes the
// same.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL(name) __attribute__((export_name(#name))) int name(int n)
#define NOINLINE __attribute__((noinline))

static u32 next(u32 x) { return x * 1664525 + 1013904223; }

// loop: arithmetic in registers, two short branches a turn.
KERNEL(loop) {
	u32 x = 1;
	for (int i = 0; i < n * 4096; i++) {
		x = next(x);
		if (x & 1024)
			x ^= x >> 13;
		else
			x += i;
	}
	return (int)x;
}

// calls: short functions, called directly and through a table.
NOINLINE static u32 add(u32 x, u32 y) { return x + y; }
NOINLINE static u32 mix(u32 x, u32 y) { return x ^ (y << 5) ^ (x >> 3); }
NOINLINE static u32 mul(u32 x, u32 y) { return x * (y | 1); }
NOINLINE static u32 sub(u32 x, u32 y) { return x - (y >> 1); }
static u32 (*volatile const operations[4])(u32, u32) = {add, mix, mul, sub};

KERNEL(calls) {
	u32 x = 1;
	for (int i = 0; i < n * 1024; i++)
		x = mix(operations[x & 3](x, i), add(x, i));
	return (int)x;
}

// recursion: calls alone.
NOINLINE static u32 fibonacci(u32 k) {
	return k < 2 ? k : fibonacci(k - 1) + fibonacci(k - 2);
}

KERNEL(recursion) {
	u32 sum = 0;
	for (int i = 0; i < n; i++)
		sum += fibonacci(15 + (i & 1));
	return (int)sum;
}

// stream: reads and writes in order over 512 KiB.
enum { words = 32768 };
static u64 from[words], to[words];

KERNEL(stream) {
	for (int i = 0; i < words; i++) {
		from[i] = (u64)i * 2654435761u;
		to[i] = 0;
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < words; j++)
			to[j] = to[j] * 3 + (from[j] ^ i);
	u64 sum = 0;
	for (int j = 0; j < words; j++)
		sum ^= to[j] + j;
	return (int)(sum ^ sum >> 32);
}

// nbody: floating point in registers and square roots.
typedef struct { double x, y, z, vx, vy, vz, mass; } body;

KERNEL(nbody) {
	body b[5] = {
		{0, 0, 0, 0, 0, 0, 39.5},
		{4.8, -1.2, -0.1, 0.6, 2.8, -0.02, 0.04},
		{8.3, 4.1, -0.4, -1.0, 1.8, 0.008, 0.01},
		{12.9, -15.1, -0.2, 1.1, 0.9, -0.01, 0.002},
		{15.4, -25.9, 0.2, 1.0, 0.6, -0.03, 0.002},
	};
	for (int step = 0; step < n * 16; step++) {
		for (int i = 0; i < 5; i++) {
			for (int j = i + 1; j < 5; j++) {
				double dx = b[i].x - b[j].x, dy = b[i].y - b[j].y, dz = b[i].z - b[j].z;
				double square = dx * dx + dy * dy + dz * dz;
				double force = 0.01 / (square * __builtin_sqrt(square));
				b[i].vx -= dx * b[j].mass * force;
				b[i].vy -= dy * b[j].mass * force;
				b[i].vz -= dz * b[j].mass * force;
				b[j].vx += dx * b[i].mass * force;
				b[j].vy += dy * b[i].mass * force;
				b[j].vz += dz * b[i].mass * force;
			}
		}
		for (int i = 0; i < 5; i++) {
			b[i].x += 0.01 * b[i].vx;
			b[i].y += 0.01 * b[i].vy;
			b[i].z += 0.01 * b[i].vz;
		}
	}
	return (int)(b[0].x * 1e6) ^ (int)(b[1].y * 1e6) ^ (int)(b[4].z * 1e6);
}

// matrix: 64 × 64, the inner loop over columns of the right one.
enum { side = 64 };
static double left[side][side], right[side][side], product[side][side];

KERNEL(matrix) {
	for (int i = 0; i < side; i++)
		for (int j = 0; j < side; j++) {
			left[i][j] = (i * 3 + j) % 17;
			right[i][j] = (i + j * 5) % 13;
			product[i][j] = 0;
		}
	for (int turn = 0; turn < n; turn++)
		for (int i = 0; i < side; i++)
			for (int j = 0; j < side; j++) {
				double sum = 0;
				for (int k = 0; k < side; k++)
					sum += left[i][k] * right[k][j];
				product[i][j] = sum + turn;
			}
	double trace = 0;
	for (int i = 0; i < side; i++)
		trace += product[i][i];
	return (int)trace;
}

// hash: SHA-256's compression, its state fed by its own output.
static const u32 rounds[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static u32 rotate(u32 x, int by) { return x >> by | x << (32 - by); }

KERNEL(hash) {
	u32 state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	u32 w[64];
	for (int turn = 0; turn < n * 8; turn++) {
		for (int i = 0; i < 16; i++)
			w[i] = state[i & 7] + (u32)(turn * i);
		for (int i = 16; i < 64; i++) {
			u32 a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
			u32 b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
			w[i] = w[i - 16] + a + w[i - 7] + b;
		}
		u32 a = state[0], b = state[1], c = state[2], d = state[3];
		u32 e = state[4], f = state[5], g = state[6], h = state[7];
		for (int i = 0; i < 64; i++) {
			u32 t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i] + w[i];
			u32 t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
			h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
		}
		state[0] += a, state[1] += b, state[2] += c, state[3] += d;
		state[4] += e, state[5] += f, state[6] += g, state[7] += h;
	}
	u32 sum = 0;
	for (int i = 0; i < 8; i++)
		sum ^= state[i];
	return (int)sum;
}

// sort: quicksort of 1,024 numbers.
static u32 numbers[1024];

NOINLINE static void quicksort(int low, int high) {
	while (low < high) {
		u32 pivot = numbers[(low + high) / 2];
		int i = low, j = high;
		while (i <= j) {
			while (numbers[i] < pivot)
				i++;
			while (numbers[j] > pivot)
				j--;
			if (i <= j) {
				u32 t = numbers[i];
				numbers[i++] = numbers[j];
				numbers[j--] = t;
			}
		}
		quicksort(low, j);
		low = i;
	}
}

KERNEL(sort) {
	u32 x = 1, sum = 0;
	for (int turn = 0; turn < n; turn++) {
		for (int i = 0; i < 1024; i++)
			numbers[i] = x = next(x);
		quicksort(0, 1023);
		sum = sum * 31 + numbers[turn & 1023];
	}
	return (int)sum;
}

// parse: JSON by recursive descent, a byte at a time.
static const char document[] =
	"{\"events\":[{\"id\":17,\"title\":\"Stand-up\",\"at\":[2026,3,23,9,30],\"open\":true,\"weight\":-12.75},"
	"{\"id\":18,\"title\":\"Review \\\"two\\\"\",\"at\":[2026,3,23,14,0],\"open\":false,\"weight\":1024.5},"
	"{\"id\":19,\"title\":\"\",\"at\":[],\"open\":null,\"weight\":0.125}],\"next\":{\"page\":2,\"of\":[1,[2,[3,[4]]]]}}";

static int position;
static u32 seen;

static void value(void);

NOINLINE static void string(void) {
	position++;
	while (document[position] != '"') {
		if (document[position] == '\\')
			position++;
		seen = seen * 31 + (u8)document[position++];
	}
	position++;
}

NOINLINE static void number(void) {
	int negative = document[position] == '-';
	position += negative;
	double v = 0, scale = 1;
	while (document[position] >= '0' && document[position] <= '9')
		v = v * 10 + (document[position++] - '0');
	if (document[position] == '.') {
		position++;
		while (document[position] >= '0' && document[position] <= '9') {
			scale /= 10;
			v += (document[position++] - '0') * scale;
		}
	}
	seen = seen * 31 + (u32)(int)((negative ? -v : v) * 1000);
}

NOINLINE static void value(void) {
	switch (document[position]) {
	case '{':
	case '[':
		do {
			position++;
			if (document[position] == ']' || document[position] == '}')
				break;
			value();
			if (document[position] == ':') {
				position++;
				value();
			}
		} while (document[position] == ',');
		position++;
		seen++;
		break;
	case '"':
		string();
		break;
	case 't':
	case 'n':
		position += 4;
		seen += 3;
		break;
	case 'f':
		position += 5;
		seen += 5;
		break;
	default:
		number();
	}
}

KERNEL(parse) {
	seen = 0;
	for (int i = 0; i < n * 4; i++) {
		position = 0;
		value();
	}
	return (int)(seen + (u32)position);
}

// sieve: the primes below 32,768.
static u8 composite[32768];

KERNEL(sieve) {
	int count = 0;
	for (int turn = 0; turn < n; turn++) {
		for (int i = 0; i < 32768; i++)
			composite[i] = 0;
		for (int i = 2; i < 32768; i++) {
			if (composite[i])
				continue;
			count++;
			for (int j = i * 2; j < 32768; j += i)
				composite[j] = 1;
		}
	}
	return count;
}

// search: four words in 16 KiB of text, by comparing at every place.
static u8 text[16384];
static const char *const wanted[4] = {"abba", "bcdabc", "dddddd", "acbdacbd"};

KERNEL(search) {
	u32 x = 7, found = 0;
	for (int i = 0; i < 16384; i++) {
		x = next(x);
		text[i] = 'a' + (x >> 24 & 3);
	}
	for (int turn = 0; turn < n; turn++) {
		const char *word = wanted[turn & 3];
		for (int i = 0; i < 16384 - 8; i++) {
			int k = 0;
			while (word[k] && text[i + k] == (u8)word[k])
				k++;
			if (!word[k])
				found = found * 31 + i;
		}
	}
	return (int)found;
}

// crc32: by table, over 16 KiB.
static u32 table[256];
static u8 data[16384];

KERNEL(crc32) {
	for (u32 i = 0; i < 256; i++) {
		u32 c = i;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
		table[i] = c;
	}
	for (int i = 0; i < 16384; i++)
		data[i] = (u8)(i * 7);
	u32 c = ~0u;
	for (int turn = 0; turn < n; turn++)
		for (int i = 0; i < 16384; i++)
			c = table[(c ^ data[i]) & 255] ^ c >> 8;
	return (int)~c;
}
