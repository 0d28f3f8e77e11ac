package capability_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
)

func openValues(t *testing.T, limits abi.Limits) (*capability.Ledger, *capability.KV) {
	t.Helper()
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	return ledger, capability.NewKV(ledger, capability.Caller{Hand: "keeper", Subject: "s"}, limits)
}

func setValue(t *testing.T, kv *capability.KV, key, value string) {
	t.Helper()
	if err := kv.Set(t.Context(), abi.KVSetRequest{Key: key, Value: []byte(value)}); err != nil {
		t.Fatalf("set %.20q: %v", key, err)
	}
}

func getValue(t *testing.T, kv *capability.KV, key string) string {
	t.Helper()
	value, err := kv.Get(t.Context(), abi.KVGetRequest{Key: key})
	if errors.Is(err, abi.KindNotFound) {
		return "absent"
	}
	if err != nil {
		t.Fatalf("get %.20q: %v", key, err)
	}
	return string(value)
}

// H10
func TestValuesAreOfOneHandAndOneSubject(t *testing.T) {
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	// Names that a careless key of the partition would take for the same.
	callers := []capability.Caller{
		{Hand: "a", Subject: "b"}, {Hand: "a", Subject: "c"}, {Hand: "b", Subject: "b"}, {Hand: "ab", Subject: ""},
		{Hand: "", Subject: "ab"}, {Hand: "a", Subject: "b\x00"}, {Hand: "A", Subject: "b"}, {Hand: "a ", Subject: "b"},
	}
	for i, caller := range callers {
		kv := capability.NewKV(ledger, caller, abi.Limits{})
		if got := getValue(t, kv, "key"); got != "absent" {
			t.Errorf("%+v finds %q", caller, got)
		}
		setValue(t, kv, "key", fmt.Sprint("of ", i))
		setValue(t, kv, fmt.Sprint("own", i), "")
	}
	for i, caller := range callers {
		kv := capability.NewKV(ledger, caller, abi.Limits{})
		if got := getValue(t, kv, "key"); got != fmt.Sprint("of ", i) {
			t.Errorf("%+v finds %q", caller, got)
		}
		page, err := kv.List(t.Context(), abi.KVListRequest{Limit: 1000})
		if want := []string{"key", fmt.Sprint("own", i)}; err != nil || !slices.Equal(page.Keys, want) {
			t.Errorf("%+v lists %q, %v", caller, page.Keys, err)
		}
	}
	first := capability.NewKV(ledger, callers[0], abi.Limits{})
	for range 2 {
		if err := first.Delete(t.Context(), abi.KVDeleteRequest{Key: "key"}); err != nil {
			t.Fatal(err)
		}
	}
	for i, caller := range callers[1:] {
		if got := getValue(t, capability.NewKV(ledger, caller, abi.Limits{}), "key"); got != fmt.Sprint("of ", i+1) {
			t.Errorf("after another's deletion %+v finds %q", caller, got)
		}
	}
}

func TestQuotaIsExactToTheByte(t *testing.T) {
	ledger, kv := openValues(t, abi.Limits{KVTotalBytes: 100, KVValueBytes: 90})
	quota := func(key string, size int) error {
		return kv.Set(t.Context(), abi.KVSetRequest{Key: key, Value: make([]byte, size)})
	}
	for _, step := range []struct {
		key    string
		size   int
		want   error
		result string
	}{
		{"a", 91, abi.KindTooLarge, "one value over its limit"},
		{"a", 90, nil, "91 bytes"},
		{"bb", 8, abi.KindQuotaExceeded, "101 bytes"},
		{"bb", 7, nil, "100 bytes"},
		{"c", 0, abi.KindQuotaExceeded, "a key alone counts"},
		{"bb", 8, abi.KindQuotaExceeded, "a replacement that grows"},
		{"bb", 7, nil, "a replacement of the same size"},
		{"a", 10, nil, "20 bytes"},
		{"ä", 78, nil, "a key counts in bytes: 100"},
		{"d", 0, abi.KindQuotaExceeded, "101 bytes"},
	} {
		if err := quota(step.key, step.size); !errors.Is(err, step.want) {
			t.Errorf("%s %d (%s): %v, want %v", step.key, step.size, step.result, err, step.want)
		}
	}
	if got := getValue(t, kv, "bb"); len(got) != 7 {
		t.Errorf("a refused set changed the value: %d bytes", len(got))
	}
	if err := kv.Delete(t.Context(), abi.KVDeleteRequest{Key: "ä"}); err != nil {
		t.Fatal(err)
	}
	if err := quota("e", 79); err != nil {
		t.Errorf("what a deletion freed: %v", err)
	}
	// Another subject has a quota of its own.
	other := capability.NewKV(ledger, capability.Caller{Hand: "keeper", Subject: "other"}, abi.Limits{KVTotalBytes: 100, KVValueBytes: 99})
	if err := other.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: make([]byte, 99)}); err != nil {
		t.Error(err)
	}
	// An operator who lowers the quota takes nothing away; smaller values
	// may still replace larger ones.
	lowered := capability.NewKV(ledger, capability.Caller{Hand: "keeper", Subject: "s"}, abi.Limits{KVTotalBytes: 10})
	for size, want := range map[int]error{80: abi.KindQuotaExceeded, 78: nil} {
		if err := lowered.Set(t.Context(), abi.KVSetRequest{Key: "e", Value: make([]byte, size)}); !errors.Is(err, want) {
			t.Errorf("lowered, %d: %v, want %v", size, err, want)
		}
	}

	// Each refusal is on record at once, with the limit.
	decisions, err := ledger.Decisions(t.Context(), "keeper", 1000)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, d := range decisions {
		if !d.Allowed {
			refused++
			if d.Action != capability.ActionKVSet || !strings.Contains(d.Reason, "at most") {
				t.Errorf("recorded as %+v", d)
			}
		}
	}
	if refused != 6 {
		t.Errorf("%d refusals on record", refused)
	}
}

func TestKeysAreBytes(t *testing.T) {
	_, kv := openValues(t, abi.Limits{})
	keys := []string{
		"a", "A", "a\x00", "a\x00b", "\x00", "\n", "a\nb", "ä", "a\u0308", "\ufffd", "\U0010ffff", "%", "_", "a%", "'", "\"",
		strings.Repeat("k", 512), strings.Repeat("k", 511) + "l", strings.Repeat("\U0001f9e4", 128),
	}
	for i, key := range keys {
		setValue(t, kv, key, fmt.Sprint(i))
	}
	for i, key := range keys {
		if got := getValue(t, kv, key); got != fmt.Sprint(i) {
			t.Errorf("%.20q: %q", key, got)
		}
	}
	slices.Sort(keys)
	page, err := kv.List(t.Context(), abi.KVListRequest{Limit: 1000})
	if err != nil || !slices.Equal(page.Keys, keys) {
		t.Errorf("%q, %v", page.Keys, err)
	}
	setValue(t, kv, "empty", "")
	if value, err := kv.Get(t.Context(), abi.KVGetRequest{Key: "empty"}); err != nil || len(value) != 0 {
		t.Errorf("an empty value: %q, %v", value, err)
	}
	binary := string([]byte{0, 0xff, '\n', 0xc3, 0x28})
	setValue(t, kv, "binary", binary)
	if got := getValue(t, kv, "binary"); got != binary {
		t.Errorf("%q", got)
	}
}

// The port behaves like a map with a sum, whatever is done to it.
func TestValuesAgainstAModel(t *testing.T) {
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		const quota = 40
		kv := capability.NewKV(ledger, capability.Caller{Hand: "h", Subject: fmt.Sprint(run)}, abi.Limits{KVTotalBytes: quota})
		model := map[string]string{}
		keys := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00ä\U0010ffff")), 1, 3, -1)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			key := keys.Draw(t, "key")
			switch rapid.SampledFrom([]string{"set", "delete", "get", "list"}).Draw(t, "op") {
			case "set":
				value := strings.Repeat("v", rapid.IntRange(0, 20).Draw(t, "size"))
				sum := 0
				for k, v := range model {
					sum += len(k) + len(v)
				}
				old, had := model[key]
				grows := len(value) - len(old)
				if !had {
					grows += len(key)
				}
				err := kv.Set(context.Background(), abi.KVSetRequest{Key: key, Value: []byte(value)})
				if fits := sum+grows <= quota; fits && err != nil || !fits && grows > 0 && !errors.Is(err, abi.KindQuotaExceeded) {
					t.Fatalf("set %q to %d bytes with %d there: %v", key, len(value), sum, err)
				}
				if err == nil {
					model[key] = value
				}
			case "delete":
				if err := kv.Delete(context.Background(), abi.KVDeleteRequest{Key: key}); err != nil {
					t.Fatal(err)
				}
				delete(model, key)
			case "get":
				got, err := kv.Get(context.Background(), abi.KVGetRequest{Key: key})
				want, ok := model[key]
				if string(got) != want || ok != (err == nil) {
					t.Fatalf("get %q: %q, %v; want %q, %v", key, got, err, want, ok)
				}
			case "list":
				prefix := rapid.OneOf(rapid.Just(""), keys).Draw(t, "prefix")
				after := rapid.OneOf(rapid.Just(""), keys).Draw(t, "after")
				limit := rapid.IntRange(1, 4).Draw(t, "limit")
				want := []string{}
				for k := range model {
					if strings.HasPrefix(k, prefix) && k > after {
						want = append(want, k)
					}
				}
				slices.Sort(want)
				more := len(want) > limit
				want = want[:min(len(want), limit)]
				page, err := kv.List(context.Background(), abi.KVListRequest{Prefix: prefix, After: after, Limit: limit})
				if err != nil || !slices.Equal(page.Keys, want) || page.More != more {
					t.Fatalf("list %q after %q: %q %v, %v; want %q %v", prefix, after, page.Keys, page.More, err, want, more)
				}
			}
		}
	})
}

// Queries of one hand and user share a quota, also when they run at once, and
// each reads what it has written.
func TestValuesUnderConcurrency(t *testing.T) {
	const workers, size = 8, 100
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	limits := abi.Limits{KVTotalBytes: 50 * (size + 4)}
	var group sync.WaitGroup
	var kept [workers]int
	for worker := range workers {
		group.Go(func() {
			kv := capability.NewKV(ledger, capability.Caller{Hand: "h", Subject: "s"}, limits)
			private := capability.NewKV(ledger, capability.Caller{Hand: "h", Subject: fmt.Sprint("s", worker)}, limits)
			for i := range 10 {
				key := fmt.Sprintf("%d-%02d", worker, i) // 4 bytes
				value := bytes.Repeat([]byte{byte('a' + worker)}, size)
				switch err := kv.Set(t.Context(), abi.KVSetRequest{Key: key, Value: value}); {
				case err == nil:
					kept[worker]++
					if got, err := kv.Get(t.Context(), abi.KVGetRequest{Key: key}); err != nil || !bytes.Equal(got, value) {
						t.Errorf("%s: %q, %v", key, got, err)
					}
				case !errors.Is(err, abi.KindQuotaExceeded):
					t.Errorf("%s: %v", key, err)
				}
				if err := private.Set(t.Context(), abi.KVSetRequest{Key: "same", Value: value}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	total := 0
	for _, n := range kept {
		total += n
	}
	page, err := capability.NewKV(ledger, capability.Caller{Hand: "h", Subject: "s"}, limits).List(t.Context(), abi.KVListRequest{Limit: 1000})
	if err != nil || total != 50 || len(page.Keys) != 50 {
		t.Errorf("%d sets were acknowledged, %d keys are there, the quota has room for 50; %v", total, len(page.Keys), err)
	}
}

// Another process that writes holds up no reader, and a call no longer than its
// context.
func TestReadsDoNotWaitForTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	kv := capability.NewKV(ledger, capability.Caller{Hand: "h"}, abi.Limits{})
	setValue(t, kv, "k", "v")
	blocker := openDatabase(t, path)
	blocker.SetMaxOpenConns(1)
	execute(t, blocker, "BEGIN IMMEDIATE")
	cancelled, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- kv.Set(cancelled, abi.KVSetRequest{Key: "late", Value: nil}) }()
	for range 100 {
		if got := getValue(t, kv, "k"); got != "v" {
			t.Errorf("%q", got)
		}
		if _, err := kv.List(t.Context(), abi.KVListRequest{Limit: 10}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, abi.KindTimeout) && !errors.Is(err, abi.KindUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	execute(t, blocker, "ROLLBACK")
	setValue(t, kv, "k", "again")
	if got := getValue(t, kv, "k"); got != "again" {
		t.Errorf("afterwards: %q", got)
	}
}

// childLedger names the file of the child process of TestSetSurvivesKill.
const childLedger = "GLOVEBOX_TEST_LEDGER"

func TestSetSurvivesKill(t *testing.T) {
	if path := os.Getenv(childLedger); path != "" {
		acknowledge(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "hands.db")
	for round, n := range []int{1, 7, 40, 150} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSetSurvivesKill$")
		child.Env = append(os.Environ(), childLedger+"="+path)
		output, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// The child is killed after n acknowledgements, in the midst of the
		// next; what it said until then counts too.
		var acknowledged []string
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			acknowledged = append(acknowledged, lines.Text())
			if len(acknowledged) == n {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // it was killed
		if len(acknowledged) < n {
			t.Fatalf("the child ended after %d", len(acknowledged))
		}
		ledger, err := capability.OpenLedger(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Of each worker, what it said last is the value, or the next.
		last := map[string]int{}
		for _, line := range acknowledged {
			worker, number, _ := strings.Cut(line, " ")
			if last[worker], err = strconv.Atoi(number); err != nil {
				t.Fatalf("the child says %q", line)
			}
		}
		for worker, said := range last {
			kv := capability.NewKV(ledger, capability.Caller{Hand: "child", Subject: worker}, abi.Limits{})
			got := getValue(t, kv, "counter")
			if got != counterValue(said) && got != counterValue(said+1) {
				t.Errorf("round %d, worker %s: %.20q after %d was acknowledged", round, worker, got, said)
			}
			// The account is that of the values: what is left of the
			// quota fits to the byte.
			page, err := kv.List(t.Context(), abi.KVListRequest{Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, key := range page.Keys {
				sum += len(key) + len(getValue(t, kv, key))
			}
			exact := capability.NewKV(ledger, capability.Caller{Hand: "child", Subject: worker}, abi.Limits{KVTotalBytes: int64(sum) + 1})
			if err := exact.Set(t.Context(), abi.KVSetRequest{Key: "xx"}); !errors.Is(err, abi.KindQuotaExceeded) {
				t.Errorf("one byte over: %v", err)
			}
			setValue(t, exact, "x", "")
			if err := exact.Delete(t.Context(), abi.KVDeleteRequest{Key: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := ledger.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func counterValue(n int) string { return strings.Repeat(fmt.Sprint(n, ","), 1+n%500) }

// acknowledge sets values until it is killed, and prints each when it is set.
func acknowledge(t *testing.T, path string) {
	ledger, err := capability.OpenLedger(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			kv := capability.NewKV(ledger, capability.Caller{Hand: "child", Subject: fmt.Sprint(worker)}, abi.Limits{})
			for n := 0; ; n++ {
				if kv.Set(t.Context(), abi.KVSetRequest{Key: "counter", Value: []byte(counterValue(n))}) != nil {
					return
				}
				mu.Lock()
				_, err := io.WriteString(os.Stdout, fmt.Sprintln(worker, n))
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkKV(b *testing.B) {
	ledger, err := capability.OpenLedger(b.Context(), filepath.Join(b.TempDir(), "hands.db"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer ledger.Close()
	kv := capability.NewKV(ledger, capability.Caller{Hand: "h"}, abi.Limits{})
	value := make([]byte, 100)
	b.Run("set", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := kv.Set(b.Context(), abi.KVSetRequest{Key: fmt.Sprint("key", i%1000), Value: value}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := kv.Get(b.Context(), abi.KVGetRequest{Key: fmt.Sprint("key", i%10)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("set from 8", func(b *testing.B) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := kv.Set(b.Context(), abi.KVSetRequest{Key: "shared", Value: value}); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
