package capability_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// keeper is the hand of testdata/keeper, built once.
var keeper = sync.OnceValues(func() ([]byte, error) {
	return build.Hand(context.Background(), filepath.Join("testdata", "keeper"), build.Reactor)
})

// loadKeeper loads the hand once for each of the limits; compiled, it is shared.
func loadKeeper(t *testing.T, limits ...abi.Limits) []*sandbox.Module {
	t.Helper()
	wasm, err := keeper()
	if err != nil {
		t.Fatal(err)
	}
	engine, err := sandbox.New(sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	var modules []*sandbox.Module
	for _, l := range limits {
		module, err := engine.Load(t.Context(), wasm, sandbox.Options{Trusted: true, Name: "keeper", Limits: l,
			Granted: []abi.Capability{abi.CapabilityKV, abi.CapabilityLLM}})
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, module)
	}
	return modules
}

// command is one line of a prompt for the keeper.
func command(words ...any) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(fmt.Sprint(w))
	}
	return strings.Join(quoted, " ")
}

// H10, from inside the box.
func TestHandKeepsValues(t *testing.T) {
	modules := loadKeeper(t, abi.Limits{}, abi.Limits{Calls: 7}, abi.Limits{KVValueBytes: 1000, KVTotalBytes: 1500})
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	ask := func(module *sandbox.Module, caller capability.Caller, commands ...string) string {
		t.Helper()
		result, err := module.Query(t.Context(), abi.Query{Prompt: strings.Join(commands, "\n"), MaxOutputTokens: 100_000},
			sandbox.Ports{KV: capability.NewKV(ledger, caller, module.Limits())})
		if err != nil {
			t.Fatal(err)
		}
		return boundary.Neutral(result.Reply)
	}
	alice := capability.Caller{Hand: "keeper", Subject: "alice"}
	long := strings.Repeat("k", 512)
	value := "any\x00\xff\nbytes"
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	check(ask(modules[0], alice,
		command("get", "k"), command("set", "k", value), command("get", "k"), command("set", "k", "second"),
		command("set", "a\x00\nb", "odd"), command("set", long, "long"), command("set", long+"k", ""), command("set", "", ""), command("set", "\xff", ""),
		command("delete", "absent"), command("set", "empty", ""), command("get", "empty")),
		"error: not_found\nset\n"+strconv.Quote(value)+"\nset\nset\nset\nerror: bad_request\nerror: bad_request\nerror: bad_request\ndeleted\nset\n\"\"")
	// What one query kept the next one finds; the instance is another.
	check(ask(modules[0], alice, command("get", "k"), command("get", "a\x00\nb"), command("get", long), command("keys", ""),
		command("list", "", "", 2), command("list", "", "empty", 1), command("list", "k", "", 10), command("list", "zzz")),
		fmt.Sprintf("\"second\"\n\"odd\"\n\"long\"\n%q\n%q true\n%q true\n%q false\n[] false",
			[]string{"a\x00\nb", "empty", "k", long}, []string{"a\x00\nb", "empty"}, []string{"k"}, []string{"k", long}))
	// Nobody else finds it.
	for _, other := range []capability.Caller{{Hand: "keeper", Subject: "bob"}, {Hand: "other", Subject: "alice"}} {
		check(ask(modules[0], other, command("get", "k"), command("keys", ""), command("delete", "k"), command("set", "k", "theirs")),
			"error: not_found\n[]\ndeleted\nset")
	}
	check(ask(modules[0], alice, command("get", "k"), command("delete", "k"), command("get", "k")), "\"second\"\ndeleted\nerror: not_found")

	check(ask(modules[1], alice, command("calls", "k")), "7 calls, then too many calls")
	carol := capability.Caller{Hand: "keeper", Subject: "carol"}
	check(ask(modules[2], carol, command("fill", "a", "", 1000), command("fill", "b", "", 1001), command("fill", "b", "", 499),
		command("fill", "b", "", 498), command("get", "b"), command("delete", "a"), command("fill", "b", "", 1000)),
		"set\nerror: too_large\nerror: quota_exceeded\nset\n"+strconv.Quote(string(make([]byte, 498)))+"\ndeleted\nset")
	result, err := modules[0].Query(t.Context(), abi.Query{Prompt: command("get", "k")}, sandbox.Ports{})
	if got := boundary.Neutral(result.Reply); err != nil || got != "error: not_granted" {
		t.Errorf("without a port: %q, %v", got, err)
	}
}

// H12, from inside the box.
func TestHandAsksTheModelWithinItsBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and does one thing after the other: left to the whole run")
	}
	modules := loadKeeper(t, abi.Limits{}, abi.Limits{LLMCalls: 2, LLMInputTokens: 100}, abi.Limits{Timeout: 2 * time.Second})
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	var asked []llm.Request
	// The model disregards its bound, and says that it kept to it.
	model := scriptedModel(func(_ context.Context, r llm.Request) (llm.Response, error) {
		asked = append(asked, r)
		text := strings.Repeat("word", 1000)
		if r.Messages[0].Text == "short" {
			text = "brief"
		}
		return llm.Response{Text: text, InputTokens: 1, OutputTokens: 1}, nil
	})
	ask := func(module *sandbox.Module, model llm.Model, budget int, commands ...string) []string {
		t.Helper()
		asked = nil
		result, err := module.Query(t.Context(), abi.Query{Prompt: strings.Join(commands, "\n"), MaxOutputTokens: budget},
			sandbox.Ports{LLM: capability.NewLLM(ledger, capability.Caller{Hand: "keeper", Subject: "s"}, model)})
		if err != nil {
			t.Fatal(err)
		}
		if result.Reply.Tokens() > budget {
			t.Errorf("the reply has %d tokens of %d", result.Reply.Tokens(), budget)
		}
		return strings.Split(boundary.Neutral(result.Reply), "\n")
	}

	// 256 tokens: 100 are answered in full, 2 are a short answer, 150 are
	// cut, 4 are what is left, and then there is nothing.
	got := ask(modules[0], model, 256, command("budget"), command("spend", "sys", "p", 100), command("spend", "", "short", 100),
		command("spend", "", "p", 150), command("spend", "", "p"), command("spend", "", "short", 1), command("spend", "", "p", 1000))
	if fmt.Sprint(got) != "[256 100 2 150 4 error: quota_exceeded error: quota_exceeded]" {
		t.Errorf("the hand sees %v", got)
	}
	bounds := []int{}
	for _, r := range asked {
		bounds = append(bounds, r.MaxOutputTokens)
	}
	if fmt.Sprint(bounds) != "[100 100 150 4]" {
		t.Errorf("the model was asked for %v", bounds)
	}
	if asked[0].System != "sys" || !reflect.DeepEqual(asked[0].Messages, []llm.Message{{Role: llm.RoleUser, Text: "p"}}) {
		t.Errorf("asked %+v", asked[0])
	}
	// Thinking counts: what a model spends without a word is gone.
	thinking := scriptedModel(func(_ context.Context, r llm.Request) (llm.Response, error) {
		return llm.Response{OutputTokens: r.MaxOutputTokens}, llm.ErrEmpty
	})
	if got := ask(modules[0], thinking, 256, command("spend", "", "p", 200), command("spend", "", "p", 200), command("spend", "", "p", 1)); fmt.Sprint(got) != "[0 0 error: quota_exceeded]" {
		t.Errorf("a model that thinks: %v", got)
	}

	// A refusal of the limits does not reach the model.
	got = ask(modules[1], model, 10_000, command("ask", "", strings.Repeat("x", 404)), command("ask", strings.Repeat("s", 200), strings.Repeat("x", 160)),
		command("ask", "", strings.Repeat("x", 44)), command("ask", "", "short"), command("ask", "", "short"))
	for i, want := range []string{"error: quota_exceeded", `"word`, "error: quota_exceeded", `"brief" 1 1`, "error: quota_exceeded"} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("%d: %q, want %q", i, got[i], want)
		}
	}
	if len(asked) != 2 {
		t.Errorf("the model was asked %d times", len(asked))
	}

	// Each failure has its kind inside.
	failures := map[string]error{"rate": llm.ErrRateLimited, "long": llm.ErrContextTooLong, "no": llm.ErrRefused, "key": llm.ErrAuth}
	failing := scriptedModel(func(_ context.Context, r llm.Request) (llm.Response, error) {
		return llm.Response{}, fmt.Errorf("driver: %w", failures[r.Messages[0].Text])
	})
	got = ask(modules[0], failing, 1000, command("ask", "", "rate"), command("ask", "", "long"), command("ask", "", "no"), command("ask", "", "key"))
	if fmt.Sprint(got) != "[error: unavailable error: too_large error: denied error: unavailable]" {
		t.Errorf("%q", got)
	}
	if got := ask(modules[0], nil, 1000, command("ask", "", "p")); got[0] != "error: disabled" {
		t.Errorf("without a model: %q", got)
	}

	// A model that does not answer in time costs the query no more than that.
	_, err := modules[2].Query(t.Context(), abi.Query{Prompt: command("ask", "", "p")}, sandbox.Ports{
		LLM: capability.NewLLM(ledger, capability.Caller{Hand: "keeper"}, scriptedModel(func(ctx context.Context, _ llm.Request) (llm.Response, error) {
			<-ctx.Done()
			return llm.Response{}, ctx.Err()
		}))})
	if !errors.Is(err, abi.KindTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a model that hangs: %v", err)
	}
}
