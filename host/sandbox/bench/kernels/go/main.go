//go:build wasip1

// The kernels of ../c/kernels.c in Go. Each is exported under its name, takes
// how often to do its work, and returns the same checksum.
package main

import (
	"math"
	"math/bits"
)

func main() {}

func next(x uint32) uint32 { return x*1664525 + 1013904223 }

//go:wasmexport loop
func loop(n int32) int32 {
	x := uint32(1)
	for i := range uint32(n) * 4096 {
		x = next(x)
		if x&1024 != 0 {
			x ^= x >> 13
		} else {
			x += i
		}
	}
	return int32(x)
}

//go:noinline
func add(x, y uint32) uint32 { return x + y }

//go:noinline
func mix(x, y uint32) uint32 { return x ^ y<<5 ^ x>>3 }

//go:noinline
func mul(x, y uint32) uint32 { return x * (y | 1) }

//go:noinline
func sub(x, y uint32) uint32 { return x - y>>1 }

var operations = [4]func(x, y uint32) uint32{add, mix, mul, sub}

//go:wasmexport calls
func calls(n int32) int32 {
	x := uint32(1)
	for i := range uint32(n) * 1024 {
		x = mix(operations[x&3](x, i), add(x, i))
	}
	return int32(x)
}

func fibonacci(k uint32) uint32 {
	if k < 2 {
		return k
	}
	return fibonacci(k-1) + fibonacci(k-2)
}

//go:wasmexport recursion
func recursion(n int32) int32 {
	sum := uint32(0)
	for i := range uint32(n) {
		sum += fibonacci(15 + i&1)
	}
	return int32(sum)
}

var from, to [32768]uint64

//go:wasmexport stream
func stream(n int32) int32 {
	for i := range from {
		from[i] = uint64(i) * 2654435761
		to[i] = 0
	}
	for i := range uint64(n) {
		for j := range to {
			to[j] = to[j]*3 + (from[j] ^ i)
		}
	}
	sum := uint64(0)
	for j := range to {
		sum ^= to[j] + uint64(j)
	}
	return int32(sum ^ sum>>32)
}

type body struct{ x, y, z, vx, vy, vz, mass float64 }

//go:wasmexport nbody
func nbody(n int32) int32 {
	b := [5]body{
		{0, 0, 0, 0, 0, 0, 39.5},
		{4.8, -1.2, -0.1, 0.6, 2.8, -0.02, 0.04},
		{8.3, 4.1, -0.4, -1.0, 1.8, 0.008, 0.01},
		{12.9, -15.1, -0.2, 1.1, 0.9, -0.01, 0.002},
		{15.4, -25.9, 0.2, 1.0, 0.6, -0.03, 0.002},
	}
	for range n * 16 {
		for i := range b {
			for j := i + 1; j < len(b); j++ {
				dx, dy, dz := b[i].x-b[j].x, b[i].y-b[j].y, b[i].z-b[j].z
				square := dx*dx + dy*dy + dz*dz
				force := 0.01 / (square * math.Sqrt(square))
				b[i].vx -= dx * b[j].mass * force
				b[i].vy -= dy * b[j].mass * force
				b[i].vz -= dz * b[j].mass * force
				b[j].vx += dx * b[i].mass * force
				b[j].vy += dy * b[i].mass * force
				b[j].vz += dz * b[i].mass * force
			}
		}
		for i := range b {
			b[i].x += 0.01 * b[i].vx
			b[i].y += 0.01 * b[i].vy
			b[i].z += 0.01 * b[i].vz
		}
	}
	return int32(b[0].x*1e6) ^ int32(b[1].y*1e6) ^ int32(b[4].z*1e6)
}

const side = 64

var left, right, product [side][side]float64

//go:wasmexport matrix
func matrix(n int32) int32 {
	for i := range side {
		for j := range side {
			left[i][j] = float64((i*3 + j) % 17)
			right[i][j] = float64((i + j*5) % 13)
			product[i][j] = 0
		}
	}
	for turn := range n {
		for i := range side {
			for j := range side {
				sum := 0.0
				for k := range side {
					sum += left[i][k] * right[k][j]
				}
				product[i][j] = sum + float64(turn)
			}
		}
	}
	trace := 0.0
	for i := range side {
		trace += product[i][i]
	}
	return int32(trace)
}

var rounds = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

func rotate(x uint32, by int) uint32 { return bits.RotateLeft32(x, -by) }

//go:wasmexport hash
func hash(n int32) int32 {
	state := [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
	var w [64]uint32
	for turn := range uint32(n) * 8 {
		for i := range 16 {
			w[i] = state[i&7] + turn*uint32(i)
		}
		for i := 16; i < 64; i++ {
			a := rotate(w[i-15], 7) ^ rotate(w[i-15], 18) ^ w[i-15]>>3
			b := rotate(w[i-2], 17) ^ rotate(w[i-2], 19) ^ w[i-2]>>10
			w[i] = w[i-16] + a + w[i-7] + b
		}
		a, b, c, d, e, f, g, h := state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
		for i := range 64 {
			t1 := h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (e&f ^ ^e&g) + rounds[i] + w[i]
			t2 := (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + (a&b ^ a&c ^ b&c)
			h, g, f, e, d, c, b, a = g, f, e, d+t1, c, b, a, t1+t2
		}
		for i, v := range [8]uint32{a, b, c, d, e, f, g, h} {
			state[i] += v
		}
	}
	sum := uint32(0)
	for _, v := range state {
		sum ^= v
	}
	return int32(sum)
}

var numbers [1024]uint32

func quicksort(low, high int) {
	for low < high {
		pivot := numbers[(low+high)/2]
		i, j := low, high
		for i <= j {
			for numbers[i] < pivot {
				i++
			}
			for numbers[j] > pivot {
				j--
			}
			if i <= j {
				numbers[i], numbers[j] = numbers[j], numbers[i]
				i++
				j--
			}
		}
		quicksort(low, j)
		low = i
	}
}

//go:wasmexport sort
func sort(n int32) int32 {
	x, sum := uint32(1), uint32(0)
	for turn := range n {
		for i := range numbers {
			x = next(x)
			numbers[i] = x
		}
		quicksort(0, 1023)
		sum = sum*31 + numbers[turn&1023]
	}
	return int32(sum)
}

const document = `{"events":[{"id":17,"title":"Stand-up","at":[2026,3,23,9,30],"open":true,"weight":-12.75},` +
	`{"id":18,"title":"Review \"two\"","at":[2026,3,23,14,0],"open":false,"weight":1024.5},` +
	`{"id":19,"title":"","at":[],"open":null,"weight":0.125}],"next":{"page":2,"of":[1,[2,[3,[4]]]]}}`

var (
	position int
	seen     uint32
)

// at gives a NUL after the end, as the document in C has one.
func at() byte {
	if position == len(document) {
		return 0
	}
	return document[position]
}

func readString() {
	position++
	for at() != '"' {
		if at() == '\\' {
			position++
		}
		seen = seen*31 + uint32(at())
		position++
	}
	position++
}

func readNumber() {
	negative := at() == '-'
	if negative {
		position++
	}
	v, scale := 0.0, 1.0
	for at() >= '0' && at() <= '9' {
		v = v*10 + float64(at()-'0')
		position++
	}
	if at() == '.' {
		position++
		for at() >= '0' && at() <= '9' {
			scale /= 10
			v += float64(at()-'0') * scale
			position++
		}
	}
	if negative {
		v = -v
	}
	seen = seen*31 + uint32(int32(v*1000))
}

func readValue() {
	switch at() {
	case '{', '[':
		for more := true; more; more = at() == ',' {
			position++
			if at() == ']' || at() == '}' {
				break
			}
			readValue()
			if at() == ':' {
				position++
				readValue()
			}
		}
		position++
		seen++
	case '"':
		readString()
	case 't', 'n':
		position += 4
		seen += 3
	case 'f':
		position += 5
		seen += 5
	default:
		readNumber()
	}
}

//go:wasmexport parse
func parse(n int32) int32 {
	seen = 0
	for range n * 4 {
		position = 0
		readValue()
	}
	return int32(seen + uint32(position))
}

var composite [32768]bool

//go:wasmexport sieve
func sieve(n int32) int32 {
	count := int32(0)
	for range n {
		for i := range composite {
			composite[i] = false
		}
		for i := 2; i < len(composite); i++ {
			if composite[i] {
				continue
			}
			count++
			for j := i * 2; j < len(composite); j += i {
				composite[j] = true
			}
		}
	}
	return count
}

var (
	text   [16384]byte
	wanted = [4]string{"abba", "bcdabc", "dddddd", "acbdacbd"}
)

//go:wasmexport search
func search(n int32) int32 {
	x, found := uint32(7), uint32(0)
	for i := range text {
		x = next(x)
		text[i] = 'a' + byte(x>>24&3)
	}
	for turn := range n {
		word := wanted[turn&3]
		for i := range len(text) - 8 {
			k := 0
			for k < len(word) && text[i+k] == word[k] {
				k++
			}
			if k == len(word) {
				found = found*31 + uint32(i)
			}
		}
	}
	return int32(found)
}

var (
	table [256]uint32
	data  [16384]byte
)

//go:wasmexport crc32
func crc32(n int32) int32 {
	for i := range table {
		c := uint32(i)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ 0xedb88320
			} else {
				c >>= 1
			}
		}
		table[i] = c
	}
	for i := range data {
		data[i] = byte(i * 7)
	}
	c := ^uint32(0)
	for range n {
		for _, b := range data {
			c = table[byte(c)^b] ^ c>>8
		}
	}
	return int32(^c)
}
