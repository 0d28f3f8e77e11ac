package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// variants are how the hands differ that are loaded at once; dropped is code too, of
// which the host keeps none that is idle.
var variants = []string{"name", "manifest", "code", dropped}

const dropped = "code, dropped"

// vary returns the i-th hand of a variant: the same bytes, a custom section of
// its own, or also a function of its own, which nothing calls.
func vary(module []byte, variant string, i int) ([]byte, error) {
	if variant == "name" {
		return module, nil
	}
	m, err := wasm.Decode(module)
	if err != nil {
		return nil, err
	}
	if variant == "code" || variant == dropped {
		if err := addFunction(m, int64(i)); err != nil {
			return nil, err
		}
	}
	return m.WithCustom(abi.ManifestSection, fmt.Appendf(nil, "name = \"bench-%d\"\n", i)), nil
}

// addFunction adds a function that returns v and is of the type of an export.
func addFunction(m *wasm.Module, v int64) error {
	imported := m.Imported(wasm.KindFunction)
	for _, e := range m.Exports {
		if e.Kind != wasm.KindFunction || int(e.Index) < imported {
			continue
		}
		index := m.Functions[int(e.Index)-imported]
		if t := m.Types[index]; len(t.Results) != 1 || t.Results[0] != wasm.I32 {
			continue
		}
		body := append(wasm.AppendS64([]byte{0, byte(wasm.OpI32Const)}, v), byte(wasm.OpEnd))
		body = append(wasm.AppendU32(nil, uint32(len(body))), body...)
		return errors.Join(appendEntry(m, wasm.SectionFunction, wasm.AppendU32(nil, index)), appendEntry(m, wasm.SectionCode, body))
	}
	return errors.New("no exported function returns an i32")
}

// appendEntry adds an entry to a section that is a list.
func appendEntry(m *wasm.Module, id wasm.SectionID, entry []byte) error {
	for _, s := range m.Sections {
		if s.ID == id {
			count, n := binary.Uvarint(s.Data)
			m.Replace(id, append(append(wasm.AppendU32(nil, uint32(count)+1), s.Data[n:]...), entry...))
			return nil
		}
	}
	return fmt.Errorf("there is no section %v", id)
}

// manyLoaded is what many hands at once cost that do nothing.
type manyLoaded struct {
	Hands int
	Took  time.Duration
	// Before is what the host holds with the first hand loaded, After with all.
	Before, After resident
}

func init() { tasks["loaded"] = loadMany }

// loadMany loads as many hands as it is told, or as many as loadTime allows.
func loadMany(ctx context.Context, t task) (any, error) {
	h, module, err := t.read()
	if err != nil {
		return nil, err
	}
	s := setup{cache: t.Cache}
	if t.Variant == dropped {
		s.codeBytes = 1
	}
	box, err := h.open(ctx, s)
	if err != nil {
		return nil, err
	}
	var many manyLoaded
	var hands []loaded
	load := func(i int) error {
		varied, err := vary(module, t.Variant, i)
		if err != nil {
			return err
		}
		began := time.Now()
		hand, err := box.load(ctx, fmt.Sprintf("bench-%d", i), varied)
		many.Took += time.Since(began)
		if err != nil {
			return fmt.Errorf("hand %d: %w", i, err)
		}
		hands = append(hands, hand)
		return nil
	}
	if err := load(0); err != nil {
		return nil, err
	}
	if many.Before, err = measureResident(); err != nil {
		return nil, err
	}
	many.Took = 0
	for len(hands) < t.Hands && (t.Patience == 0 || many.Took < t.Patience) {
		if err := load(len(hands)); err != nil {
			return nil, err
		}
	}
	if many.After, err = measureResident(); err != nil {
		return nil, err
	}
	runtime.KeepAlive(module) // it was there before, too
	many.Hands = len(hands)
	if t.Profile != "" {
		file, err := os.Create(t.Profile)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(pprof.WriteHeapProfile(file), file.Close()); err != nil {
			return nil, err
		}
	}
	// They answer still: the first and the last.
	for _, i := range []int{0, len(hands) - 1} {
		if err := once(ctx, hands[i]); err != nil {
			return nil, fmt.Errorf("hand %d: %w", i, err)
		}
	}
	return many, box.close()
}

// printLoaded prints a row for each guest, host and variant. Of the peers it
// takes the cases that tell them apart: the smallest hand and one in Go, equal
// and different. A Go hand differs little from another here: it takes the
// smallest and the one with the SDK.
func printLoaded(ctx context.Context, w io.Writer, o options) error {
	all := thousands(float64(o.hands))
	fmt.Fprintf(w, "\n### %s hands loaded at once, idle\n\n", all)
	fmt.Fprintf(w, "| guest | host | differ in | hands | compiled in, s | loaded in, s | RSS, MiB | of %s, MiB | a hand, KiB | of it heap | machine code |\n|---|---|---|---|---|---|---|---|---|---|---|\n", all)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		if l.name == "go-json" || l.name == "go-json-warm" {
			return nil, nil
		}
		for _, h := range hostsNamed("glovebox", "wazero", "extism", "wapc") {
			for _, v := range variants {
				if h.name != hosts[0].name && (v == "manifest" || v == dropped || l.name != "c" && l.name != "go") {
					continue
				}
				if err := inFolder(ctx, l, h, func(t task) error {
					return printLoadedRow(ctx, w, o, l, v, t)
				}); err != nil {
					return nil, err
				}
			}
		}
		return nil, nil
	})
}

// printLoadedRow has one process compile the hands, as many as patience allows,
// and another load what that has left in the cache.
func printLoadedRow(ctx context.Context, w io.Writer, o options, l language, variant string, t task) error {
	t.Kind, t.Variant, t.Hands, t.Patience = "loaded", variant, o.hands, o.patience
	var compiled, m manyLoaded
	if err := elsewhere(ctx, t, &compiled); err != nil {
		return err
	}
	t.Hands, t.Patience = compiled.Hands, 0
	if o.profile != "" {
		t.Profile = fmt.Sprintf("%s.%s.%s.%s", o.profile, l.name, t.Host, variant)
	}
	if err := elsewhere(ctx, t, &m); err != nil {
		return err
	}
	each := m.After.minus(m.Before).over(max(m.Hands-1, 1))
	// What fewer hands hold, all of them hold as many times as there are more.
	whole := float64(m.After.Rss+int64(o.hands-m.Hands)*each.Rss) / (1 << 20)
	_, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %.2f | %.2f | %s | %s | %.1f | %.1f | %.1f |\n", l.name, t.Host, variant, thousands(float64(m.Hands)),
		compiled.Took.Seconds(), m.Took.Seconds(), thousands(float64(m.After.Rss)/(1<<20)), thousands(whole), float64(each.Rss)/1024, float64(each.Heap)/1024, float64(each.Code)/1024)
	return err
}
