package abi

import (
	"fmt"
	"time"
)

// Limits bound one query. A zero field means the default; DefaultLimits and
// MaxLimits give the values. Limits are plain values and copied freely.
type Limits struct {
	// Timeout is wall time from the first instruction to the last.
	Timeout time.Duration
	// Fuel bounds what the guest executes, in units of about one instruction.
	Fuel int64
	// MemoryBytes bounds the linear memory, in whole pages of 64 KiB.
	MemoryBytes int64
	// TableElements bounds the elements of all tables together.
	TableElements int
	// StackBytes bounds the call stack, in bytes of the host's memory.
	StackBytes int
	// OutputBytes bounds the reply; what is longer is cut on a rune.
	OutputBytes int
	// LogBytes and LogLines bound what the hand logs; the rest is counted.
	LogBytes int
	LogLines int
	// Calls bounds the capability calls.
	Calls int
	// FileReadBytes bounds one read, FileTotalBytes all reads of the query.
	FileReadBytes  int64
	FileTotalBytes int64
	// HTTPRequests bounds the requests of the query, redirects included;
	// HTTPBytes one body, sent or received; HTTPTimeout one request.
	HTTPRequests int
	HTTPBytes    int64
	HTTPTimeout  time.Duration
	// KVValueBytes bounds one value; KVTotalBytes all keys and values of one
	// hand and subject.
	KVValueBytes int64
	KVTotalBytes int64
	// LLMCalls bounds the completions of the query, LLMInputTokens their
	// prompts together. Their answers together have the query's
	// MaxOutputTokens.
	LLMCalls       int
	LLMInputTokens int
	// Concurrent bounds the queries of this hand that run at once.
	Concurrent int
}

// DefaultLimits returns the limits in force where nothing is configured.
func DefaultLimits() Limits {
	return Limits{
		Timeout:        30 * time.Second,
		Fuel:           10_000_000_000,
		MemoryBytes:    64 << 20,
		TableElements:  65_536,
		StackBytes:     32 << 20,
		OutputBytes:    64 << 10,
		LogBytes:       64 << 10,
		LogLines:       1000,
		Calls:          10_000,
		FileReadBytes:  1 << 20,
		FileTotalBytes: 256 << 20,
		HTTPRequests:   20,
		HTTPBytes:      4 << 20,
		HTTPTimeout:    10 * time.Second,
		KVValueBytes:   1 << 20,
		KVTotalBytes:   16 << 20,
		LLMCalls:       8,
		LLMInputTokens: 16_000,
		Concurrent:     8,
	}
}

// MaxLimits returns the caps: an operator may raise each limit up to them.
func MaxLimits() Limits {
	return Limits{
		Timeout:        300 * time.Second,
		Fuel:           1_000_000_000_000,
		MemoryBytes:    1 << 30,
		TableElements:  1 << 20,
		StackBytes:     64 << 20,
		OutputBytes:    1 << 20,
		LogBytes:       1 << 20,
		LogLines:       16_000,
		Calls:          100_000,
		FileReadBytes:  16 << 20,
		FileTotalBytes: 4 << 30,
		HTTPRequests:   200,
		HTTPBytes:      64 << 20,
		HTTPTimeout:    60 * time.Second,
		KVValueBytes:   16 << 20,
		KVTotalBytes:   1 << 30,
		LLMCalls:       100,
		LLMInputTokens: 500_000,
		Concurrent:     64,
	}
}

// WithDefaults returns l with every zero field set to its default. It returns
// an error that names the field and its range when one is negative or above
// its cap.
func (l Limits) WithDefaults() (Limits, error) {
	d, m := DefaultLimits(), MaxLimits()
	for _, err := range []error{
		settle("timeout", &l.Timeout, d.Timeout, m.Timeout),
		settle("fuel", &l.Fuel, d.Fuel, m.Fuel),
		settle("memory_bytes", &l.MemoryBytes, d.MemoryBytes, m.MemoryBytes),
		settle("table_elements", &l.TableElements, d.TableElements, m.TableElements),
		settle("stack_bytes", &l.StackBytes, d.StackBytes, m.StackBytes),
		settle("output_bytes", &l.OutputBytes, d.OutputBytes, m.OutputBytes),
		settle("log_bytes", &l.LogBytes, d.LogBytes, m.LogBytes),
		settle("log_lines", &l.LogLines, d.LogLines, m.LogLines),
		settle("calls", &l.Calls, d.Calls, m.Calls),
		settle("file_read_bytes", &l.FileReadBytes, d.FileReadBytes, m.FileReadBytes),
		settle("file_total_bytes", &l.FileTotalBytes, d.FileTotalBytes, m.FileTotalBytes),
		settle("http_requests", &l.HTTPRequests, d.HTTPRequests, m.HTTPRequests),
		settle("http_bytes", &l.HTTPBytes, d.HTTPBytes, m.HTTPBytes),
		settle("http_timeout", &l.HTTPTimeout, d.HTTPTimeout, m.HTTPTimeout),
		settle("kv_value_bytes", &l.KVValueBytes, d.KVValueBytes, m.KVValueBytes),
		settle("kv_total_bytes", &l.KVTotalBytes, d.KVTotalBytes, m.KVTotalBytes),
		settle("llm_calls", &l.LLMCalls, d.LLMCalls, m.LLMCalls),
		settle("llm_input_tokens", &l.LLMInputTokens, d.LLMInputTokens, m.LLMInputTokens),
		settle("concurrent", &l.Concurrent, d.Concurrent, m.Concurrent),
	} {
		if err != nil {
			return Limits{}, err
		}
	}
	return l, nil
}

func settle[T ~int | ~int64](name string, field *T, standard, most T) error {
	if *field == 0 {
		*field = standard
	}
	if *field < 0 || *field > most {
		return fmt.Errorf("limit %s is %v: it must be between 1 and %v", name, *field, most)
	}
	return nil
}
