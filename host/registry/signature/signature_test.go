package signature_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/plugins"
)

var now = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// calendar is a module as it is shipped, with a manifest.
func calendar(t testing.TB) []byte {
	t.Helper()
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// key returns a key that is always the same for a name.
func key(t testing.TB, name string) signature.PrivateKey {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	k, err := signature.Generate(bytes.NewReader(bytes.Repeat(seed[:], 4)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sign(t testing.TB, module []byte, k signature.PrivateKey, o signature.Options) []byte {
	t.Helper()
	signed, err := signature.Sign(module, k, o)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func trusting(keys ...signature.PrivateKey) []signature.PublicKey {
	var all []signature.PublicKey
	for _, k := range keys {
		all = append(all, k.Public())
	}
	return all
}

func TestWhoSignedIsVerified(t *testing.T) {
	ann, bob := key(t, "ann"), key(t, "bob")
	module := calendar(t)
	for _, o := range []signature.Options{
		{},
		{Comment: "built from 1.2.0, <b>&</b> \"so\" \x1b[31m\u202e"},
		{Expires: now.Add(time.Second)},
		{Comment: "both", Expires: now.In(time.FixedZone("far", 7*3600)).Add(24*time.Hour + time.Millisecond)},
		{Comment: strings.Repeat("\x01", signature.MaxCommentBytes)},
	} {
		got, err := signature.Verify(sign(t, module, ann, o), trusting(bob, ann), now)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if got.Key != ann.Public() || got.Comment != o.Comment || !got.Expires.Equal(o.Expires.Truncate(time.Second)) {
			t.Errorf("signed with %+v, read %+v", o, got)
		}
	}
	again := sign(t, module, ann, signature.Options{})
	if !bytes.Equal(again, sign(t, module, ann, signature.Options{})) {
		t.Error("the same module signed twice differs")
	}
}

// Signing leaves what is signed as it is, and takes the place of an earlier
// signature with all that belongs to it.
func TestSigningAgainReplaces(t *testing.T) {
	ann, bob := key(t, "ann"), key(t, "bob")
	first := sign(t, calendar(t), ann, signature.Options{Comment: "first", Expires: now.Add(time.Hour)})
	second := sign(t, first, bob, signature.Options{Comment: "second"})
	got, err := signature.Verify(second, trusting(bob), now)
	if err != nil || got != (signature.Signed{Key: bob.Public(), Comment: "second"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if third := sign(t, second, ann, signature.Options{}); !bytes.Equal(third, sign(t, calendar(t), ann, signature.Options{})) {
		t.Error("something of the earlier signatures is left")
	}
	if !bytes.HasSuffix(sign(t, calendar(t), ann, signature.Options{}), calendar(t)[8:]) {
		t.Error("the module was changed")
	}
	if _, err := wasm.Decode(second); err != nil {
		t.Error(err)
	}
}

// The section is the one that the convention and wasmsign2 have.
func TestTheSectionIsThatOfTheConvention(t *testing.T) {
	ann := key(t, "ann")
	m, err := wasm.Sections(sign(t, calendar(t), ann, signature.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(calendar(t)[8:])
	data := m.Sections[0].Data
	want := slices.Concat([]byte{1, 1, 1, 1, 0x90, 1, 1}, digest[:], []byte{1, 109, 42})
	if m.Sections[0].Name != "signature" || !bytes.HasPrefix(data, want) {
		t.Errorf("%q begins with %x, not %x", m.Sections[0].Name, data[:len(want)], want)
	}
	if rest := data[len(want)+42:]; len(rest) != 66 || rest[0] != 1 || rest[1] != 64 {
		t.Errorf("it ends with %x", rest)
	}
}

// with returns a module with another list of sections.
func with(t testing.TB, module []byte, change func([]wasm.Section) []wasm.Section) []byte {
	t.Helper()
	m, err := wasm.Sections(module)
	if err != nil {
		t.Fatal(err)
	}
	m.Sections = change(m.Sections)
	return m.Encode()
}

func custom(name string, data []byte) wasm.Section {
	return wasm.Section{ID: wasm.SectionCustom, Name: name, Data: data}
}

func TestWhatIsNotAsItWasSignedIsRefused(t *testing.T) {
	ann, bob := key(t, "ann"), key(t, "bob")
	good := sign(t, calendar(t), ann, signature.Options{Comment: "1.0", Expires: now.Add(time.Hour)})
	payload := func() []byte {
		m, err := wasm.Sections(good)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(m.Sections[0].Data)
	}()
	const digestAt, keyAt, signatureAt = 7, 42, 86
	// swapped replaces what the signature section holds.
	swapped := func(data []byte) []byte {
		return with(t, good, func(s []wasm.Section) []wasm.Section {
			s[0] = custom("signature", data)
			return s
		})
	}
	flipped := func(at int) []byte {
		data := slices.Clone(payload)
		data[at] ^= 1
		return swapped(data)
	}
	restated := func(said string) []byte {
		return with(t, good, func(s []wasm.Section) []wasm.Section {
			s[len(s)-1] = custom("glovebox.signing", []byte(said))
			return s
		})
	}
	otherModule, err := plugins.Module("mail")
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(k signature.PrivateKey) []byte {
		m, err := wasm.Sections(sign(t, calendar(t), k, signature.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		return m.Sections[0].Data[keyAt : keyAt+42]
	}
	for name, c := range map[string]struct {
		module []byte
		want   error
		says   string
	}{
		"nothing":            {nil, signature.ErrMalformed, "empty"},
		"no module":          {[]byte("hello, world"), signature.ErrMalformed, "not a WebAssembly module"},
		"unsigned":           {calendar(t), signature.ErrUnsigned, ""},
		"half a download":    {good[:len(good)/2], signature.ErrMalformed, "truncated"},
		"only the signature": {good[:8+2+1+10+150], signature.ErrTampered, "changed after"},
		"a bit of the code":  {func() []byte { b := slices.Clone(good); b[len(b)/2] ^= 1; return b }(), signature.ErrTampered, "changed after"},
		"trailing bytes":     {append(slices.Clone(good), 0xff), signature.ErrMalformed, "section id 255"},
		"a trailing section": {with(t, good, func(s []wasm.Section) []wasm.Section { return append(s, custom("x", nil)) }), signature.ErrTampered, "changed after"},
		"another manifest":   {with(t, good, func(s []wasm.Section) []wasm.Section { return renamed(t, s) }), signature.ErrTampered, "changed after"},
		"of another module": {with(t, otherModule, func(s []wasm.Section) []wasm.Section {
			return append([]wasm.Section{custom("signature", payload)}, s...)
		}), signature.ErrTampered, "another module"},
		"another digest":       {flipped(digestAt), signature.ErrTampered, "not one of the key"},
		"another signature":    {flipped(signatureAt), signature.ErrTampered, "not one of the key"},
		"another key":          {swapped(slices.Concat(payload[:keyAt], keyOf(bob), payload[keyAt+42:])), signature.ErrTampered, "not one of the key " + bob.Public().String()},
		"another id":           {flipped(keyAt + 2), signature.ErrUnknownKey, ""},
		"an algorithm":         {flipped(keyAt), signature.ErrMalformed, "one Ed25519 signature"},
		"another version":      {flipped(0), signature.ErrMalformed, "another version"},
		"a component":          {flipped(1), signature.ErrMalformed, "another kind of content"},
		"two sets":             {flipped(3), signature.ErrMalformed, "one Ed25519 signature"},
		"no payload":           {swapped(nil), signature.ErrMalformed, "another version"},
		"a short payload":      {swapped(payload[:149]), signature.ErrMalformed, "149 bytes"},
		"garbage after it":     {swapped(append(slices.Clone(payload), 7)), signature.ErrMalformed, "1 bytes after"},
		"two of them":          {with(t, good, func(s []wasm.Section) []wasm.Section { return append([]wasm.Section{s[0]}, s...) }), signature.ErrMalformed, "several sections"},
		"two, one at the end":  {with(t, good, func(s []wasm.Section) []wasm.Section { return append(s, s[0]) }), signature.ErrMalformed, "several sections"},
		"not at the beginning": {with(t, good, func(s []wasm.Section) []wasm.Section { s[0], s[1] = s[1], s[0]; return s }), signature.ErrMalformed, "not the first"},
		"a longer length":      {slices.Concat(good[:8], []byte{0, 0xa0, 0x81, 0}, good[11:]), signature.ErrMalformed, "a way of its own"},
		"another expiry":       {restated(`{"comment":"1.0","expires":"2036-03-23T10:00:00Z"}`), signature.ErrTampered, "changed after"},
		"another comment":      {restated(`{"comment":"2.0","expires":"2026-03-23T10:00:00Z"}`), signature.ErrTampered, "changed after"},
		"a stranger's":         {sign(t, calendar(t), bob, signature.Options{}), signature.ErrUnknownKey, bob.Public().String()},
		"over":                 {sign(t, calendar(t), ann, signature.Options{Expires: now}), signature.ErrExpired, "2026-03-23T09:00:00Z"},
		"a stranger's, over":   {sign(t, calendar(t), bob, signature.Options{Expires: now}), signature.ErrUnknownKey, bob.Public().ID()},
	} {
		got, err := signature.Verify(c.module, trusting(ann), now)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.says)
		}
		for _, other := range []error{signature.ErrUnsigned, signature.ErrMalformed, signature.ErrTampered, signature.ErrUnknownKey, signature.ErrExpired} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("%s: %v is %v too", name, err, other)
			}
		}
		if holds := c.want == signature.ErrUnknownKey || c.want == signature.ErrExpired; holds == (got == signature.Signed{}) {
			t.Errorf("%s: %+v with %v", name, got, err)
		}
	}
	if _, err := signature.Verify(good, trusting(ann), now); err != nil {
		t.Errorf("the one that all are made of: %v", err)
	}
	if _, err := signature.Verify(good, []signature.PublicKey{{}}, now); !errors.Is(err, signature.ErrUnknownKey) {
		t.Errorf("with the zero key alone: %v", err)
	}
}

// renamed gives the manifest among sections another name.
func renamed(t testing.TB, sections []wasm.Section) []wasm.Section {
	t.Helper()
	for i, s := range sections {
		if s.Name == abi.ManifestSection {
			sections[i] = custom(s.Name, bytes.Replace(s.Data, []byte("calendar"), []byte("almanach"), 1))
			if bytes.Equal(sections[i].Data, s.Data) {
				t.Fatal("the manifest does not say calendar")
			}
			return sections
		}
	}
	t.Fatal("no manifest")
	return nil
}

// Whoever has a key can sign anything: what no Sign wrote is refused from them too.
func TestStatementsThatSignDoesNotWrite(t *testing.T) {
	ann := key(t, "ann")
	for name, said := range map[string][]string{
		"not JSON":         {"comment"},
		"an unknown field": {`{"comment":"a","weight":1}`},
		"two expiries":     {`{"expires":"2026-03-22T00:00:00Z","expires":"2036-03-22T00:00:00Z"}`},
		"an offset":        {`{"expires":"2036-03-22T00:00:00+01:00"}`},
		"part of a second": {`{"expires":"2036-03-22T00:00:00.5Z"}`},
		"the year 1":       {`{"expires":"0001-01-01T00:00:00Z"}`},
		"two statements":   {`{"comment":"a"}`, `{"comment":"a"}`},
		"a long comment":   {`{"comment":"` + strings.Repeat("a", signature.MaxCommentBytes+1) + `"}`},
		"a long statement": {strings.Repeat(" ", 1<<20)},
	} {
		module := with(t, calendar(t), func(s []wasm.Section) []wasm.Section {
			for _, text := range said {
				s = append(s, custom(signature.StatementSection, []byte(text)))
			}
			return s
		})
		if got, err := signature.Verify(signature.SignAsItStands(t, module, ann), trusting(ann), now); !errors.Is(err, signature.ErrMalformed) || got != (signature.Signed{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestWhatCannotBeSigned(t *testing.T) {
	ann := key(t, "ann")
	for name, c := range map[string]struct {
		module []byte
		o      signature.Options
		want   string
	}{
		"no module":    {[]byte("\x7fELF"), signature.Options{}, "not a WebAssembly module"},
		"a long word":  {calendar(t), signature.Options{Comment: strings.Repeat("a", signature.MaxCommentBytes+1)}, "1025 bytes"},
		"not UTF-8":    {calendar(t), signature.Options{Comment: "\xff"}, "UTF-8"},
		"a far future": {calendar(t), signature.Options{Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "expiry"},
	} {
		if signed, err := signature.Sign(c.module, ann, c.o); err == nil || signed != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is read of a payload is all that is in it.
func FuzzPayload(f *testing.F) {
	m, err := wasm.Sections(sign(f, calendar(f), key(f, "ann"), signature.Options{}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Sections[0].Data)
	f.Add(m.Sections[0].Data[:40])
	f.Add([]byte{1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		again, err := signature.Reencode(data)
		switch {
		case err == nil && !bytes.Equal(again, data):
			t.Errorf("%x is read as %x", data, again)
		case err != nil && !errors.Is(err, signature.ErrMalformed):
			t.Error(err)
		}
	})
}

// No bytes crash Verify, and what it accepts of a stranger's making is nothing.
func FuzzVerify(f *testing.F) {
	ann := key(f, "ann")
	small := []byte("\x00asm\x01\x00\x00\x00")
	good := sign(f, small, ann, signature.Options{Comment: "c", Expires: now.Add(time.Hour)})
	f.Add(small)
	f.Add(good)
	f.Add(append(slices.Clone(good), good[8:]...))
	f.Fuzz(func(t *testing.T, module []byte) {
		if _, err := signature.Verify(module, trusting(ann), now); err == nil && !bytes.Equal(module, good) {
			// A signature of ann's that was not made with her key.
			t.Errorf("%x is accepted", module)
		}
	})
}
