package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// variants are how the hands differ that are loaded at once; kept is code too, of
// which the host drops none.
var variants = []string{"name", "manifest", "code", kept}

const kept = "code, kept"

// leastKept is how many hands are loaded at least to see which of them the host keeps: a
// quarter of them, in Go, take more than it keeps, so that the others show what one more
// takes and not which of them stay.
const leastKept = 128

// steps is in about how many parts the hands are loaded. What is held is measured after
// each, from a quarter of them on: one measurement varies by some MiB, too much to reckon
// 1,000 hands by where 128 are loaded.
const steps = 16

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
	if variant == "code" || variant == kept {
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
	// Held is what the host holds with some of the hands loaded; the last is with all. It
	// is empty if there was patience.
	Held []held
}

type held struct {
	Hands int
	resident
}

func (m manyLoaded) all() resident { return m.Held[len(m.Held)-1].resident }

// each is what one more hand holds: the slope of what is held, by least squares.
func (m manyLoaded) each() (r resident) {
	slope := func(of func(resident) int64) int64 {
		n := float64(len(m.Held))
		var hands, bytes, square, product float64
		for _, h := range m.Held {
			hands, bytes = hands+float64(h.Hands)/n, bytes+float64(of(h.resident))/n
		}
		for _, h := range m.Held {
			d := float64(h.Hands) - hands
			square, product = square+d*d, product+d*(float64(of(h.resident))-bytes)
		}
		if square == 0 {
			return 0
		}
		return int64(math.Round(product / square))
	}
	r.Rss, r.Heap, r.Code = slope(func(r resident) int64 { return r.Rss }), slope(func(r resident) int64 { return r.Heap }), slope(func(r resident) int64 { return r.Code })
	return r
}

func init() { tasks["loaded"] = loadMany }

// loadMany loads as many hands as it is told, and measures, or as many as patience allows.
func loadMany(ctx context.Context, t task) (any, error) {
	h, module, err := t.read()
	if err != nil {
		return nil, err
	}
	s := setup{cache: t.Cache}
	if t.Variant == kept {
		s.codeBytes = 1 << 40
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
	for len(hands) == 0 || len(hands) < t.Hands && (t.Patience == 0 || many.Took < t.Patience || len(hands) < t.Least) {
		if err := load(len(hands)); err != nil {
			return nil, err
		}
		if len(hands) == 1 {
			many.Took = 0
		}
		if step := max(t.Hands/steps, 1); t.Patience == 0 && (len(hands) == t.Hands || len(hands)%step == 0 && len(hands) >= t.Hands/4) {
			now, err := measureResident()
			if err != nil {
				return nil, err
			}
			many.Held = append(many.Held, held{len(hands), now})
		}
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
	fmt.Fprintf(w, "| guest | host | differ in | hands | compiled in, s | loaded in, s | RSS, MiB | of %s, MiB | one more hand, KiB | of it heap | machine code |\n|---|---|---|---|---|---|---|---|---|---|---|\n", all)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		if l.name == "go-json" || l.name == "go-json-warm" {
			return nil, nil
		}
		for _, h := range hostsNamed("glovebox", "wazero", "extism", "wapc") {
			rows := [][]string{{"name"}, {"manifest"}, {"code", kept}}
			if h.name != hosts[0].name {
				if rows = [][]string{{"name"}, {"code"}}; l.name != "c" && l.name != "go" {
					continue
				}
			}
			for _, variants := range rows {
				if err := inFolder(ctx, l, h, func(t task) error {
					return printLoadedRows(ctx, w, o, l, variants, t)
				}); err != nil {
					return nil, err
				}
			}
		}
		return nil, nil
	})
}

// printLoadedRows has one process compile the hands of variants whose modules are the
// same, as many as patience allows, and for each variant another load what that has
// left in the cache.
func printLoadedRows(ctx context.Context, w io.Writer, o options, l language, variants []string, t task) error {
	t.Kind, t.Variant, t.Hands, t.Patience = "loaded", variants[0], o.hands, o.patience*time.Duration(len(variants))
	if len(variants) > 1 {
		t.Least = leastKept
	}
	var compiled manyLoaded
	if err := elsewhere(ctx, t, &compiled); err != nil {
		return err
	}
	t.Hands, t.Patience = compiled.Hands, 0
	for _, variant := range variants {
		t.Variant = variant
		if o.profile != "" {
			t.Profile = fmt.Sprintf("%s.%s.%s.%s", o.profile, l.name, t.Host, variant)
		}
		var m manyLoaded
		if err := elsewhere(ctx, t, &m); err != nil {
			return err
		}
		each := m.each()
		// What fewer hands hold, all of them hold and what there are more. Of what is
		// dropped so little stays that the rest of the process varies by more.
		whole := float64(m.all().Rss+int64(o.hands-m.Hands)*max(each.Rss, each.Heap)) / (1 << 20)
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %.2f | %.2f | %s | %s | %.1f | %.1f | %.1f |\n", l.name, t.Host, variant, thousands(float64(m.Hands)),
			compiled.Took.Seconds(), m.Took.Seconds(), thousands(float64(m.all().Rss)/(1<<20)), thousands(whole), float64(each.Rss)/1024, float64(each.Heap)/1024, float64(each.Code)/1024); err != nil {
			return err
		}
	}
	return nil
}
