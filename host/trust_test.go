package host_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

var signedAt = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// signer is somebody with a key.
func signer(t testing.TB) signature.PrivateKey {
	t.Helper()
	key, err := signature.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signedBy is the hand mirror with a signature.
func signedBy(t testing.TB, key signature.PrivateKey, o signature.Options) []byte {
	t.Helper()
	path, _ := mirrorHand(t)
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signature.Sign(module, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// trusting is a configuration with the hand mirror from a file, and keys.
func trusting(t testing.TB, module []byte, hand host.HandConfig, keys ...signature.PrivateKey) host.Config {
	t.Helper()
	hand.Module = filepath.Join(t.TempDir(), "mirror.wasm")
	if err := os.WriteFile(hand.Module, module, 0o600); err != nil {
		t.Fatal(err)
	}
	config := host.Config{
		Data: t.TempDir(), Hands: map[string]host.HandConfig{"mirror": hand},
		Now: func() time.Time { return signedAt }, Trust: host.TrustConfig{Keys: map[string]string{}},
	}
	for i, key := range keys {
		config.Trust.Keys["author-"+string(rune('a'+i))] = key.Public().String()
	}
	return config
}

// Who may have signed a hand, and what the operator's word is worth, through New.
func TestTrust(t *testing.T) {
	ann, bob := signer(t), signer(t)
	path, _ := mirrorHand(t)
	unsigned, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := signedBy(t, ann, signature.Options{Comment: "release 1", Expires: signedAt.Add(time.Hour)})
	stranger := signedBy(t, bob, signature.Options{Comment: "trust me"})
	over := signedBy(t, ann, signature.Options{Expires: signedAt})
	broken := slices.Clone(good)
	broken[len(broken)-1] ^= 1
	decoded, err := wasm.Decode(good)
	if err != nil {
		t.Fatal(err)
	}
	swapped := decoded.WithCustom(abi.ManifestSection, []byte(strings.Replace(mirrorManifest, `name = "mirror"`, `name = "narcissus"`, 1)))
	moved, err := wasm.Decode([]byte(mirror))
	if err != nil {
		t.Fatal(err)
	}
	moved.Sections = append([]wasm.Section{decoded.Sections[0]}, moved.Sections...)
	word := func(module []byte) host.HandConfig {
		return host.HandConfig{Unsigned: true, Digest: sandbox.Digest(module)}
	}
	pinned := func(module []byte) host.HandConfig { return host.HandConfig{Digest: sandbox.Digest(module)} }
	trust := []signature.PrivateKey{ann}
	for name, c := range map[string]struct {
		module []byte
		hand   host.HandConfig
		keys   []signature.PrivateKey
		// want and says are of the error; signer is the name of the key, key
		// whether there is one.
		want   error
		kind   abi.Kind
		says   string
		signer string
		key    bool
	}{
		"signed":                         {module: good, keys: trust, signer: "author-a", key: true},
		"signed, with a digest":          {module: good, hand: pinned(good), keys: trust, signer: "author-a", key: true},
		"signed, one of two keys":        {module: stranger, keys: []signature.PrivateKey{ann, bob}, signer: "author-b", key: true},
		"signed, and nobody trusted":     {module: good, key: true},
		"unsigned, and nobody trusted":   {module: unsigned},
		"unsigned":                       {module: unsigned, keys: trust, want: signature.ErrUnsigned, kind: abi.KindNotGranted, says: "have its author sign it"},
		"unsigned, a digest is no word":  {module: unsigned, hand: pinned(unsigned), keys: trust, want: signature.ErrUnsigned, kind: abi.KindNotGranted, says: "unsigned = true"},
		"unsigned, with the word":        {module: unsigned, hand: word(unsigned), keys: trust},
		"the word for another file":      {module: unsigned, hand: word(good), keys: trust, kind: abi.KindNotGranted, says: "not the one that was agreed to"},
		"a stranger's":                   {module: stranger, keys: trust, want: signature.ErrUnknownKey, kind: abi.KindNotGranted, says: bob.Public().String()},
		"a stranger's, with the word":    {module: stranger, hand: word(stranger), keys: trust, key: true},
		"over":                           {module: over, keys: trust, want: signature.ErrExpired, kind: abi.KindNotGranted, says: "2026-03-23T09:00:00Z"},
		"over, with the word":            {module: over, hand: word(over), keys: trust, key: true},
		"over, and nobody trusted":       {module: over, key: true},
		"changed":                        {module: broken, keys: trust, want: signature.ErrTampered, kind: abi.KindBadModule, says: "signed again"},
		"changed, with the word":         {module: broken, hand: word(broken), keys: trust, want: signature.ErrTampered, kind: abi.KindBadModule},
		"changed, and nobody trusted":    {module: broken, want: signature.ErrTampered, kind: abi.KindBadModule},
		"another manifest":               {module: swapped, keys: trust, want: signature.ErrTampered, kind: abi.KindBadModule},
		"the signature of another":       {module: moved.Encode(), keys: trust, want: signature.ErrTampered, kind: abi.KindBadModule},
		"two signatures":                 {module: append(slices.Clone(good), good[8:8+163]...), keys: trust, want: signature.ErrMalformed, kind: abi.KindBadModule, says: "several"},
		"a module of whatever signature": {module: append(slices.Clone(good), "garbage"...), keys: trust, kind: abi.KindBadModule},
	} {
		config := trusting(t, c.module, c.hand, c.keys...)
		if c.kind != "" {
			h, err := host.New(t.Context(), config)
			if err == nil {
				t.Errorf("%s: it is open", name)
				h.Close()
				continue
			}
			if c.want != nil && !errors.Is(err, c.want) || abi.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `hand "mirror"`) {
				t.Errorf("%s: %s, %v", name, abi.KindOf(err), err)
			}
			continue
		}
		h := open(t, config)
		got := h.Hands()[0].Signer
		if (got != nil) != c.key || got != nil && got.Name != c.signer {
			t.Errorf("%s: %+v, want %q", name, got, c.signer)
		}
		if result, err := h.Query(t.Context(), host.HandQuery{Hand: "mirror", Prompt: "x"}); err != nil || result.Reply.IsEmpty() {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	// What the signer says is text from outside, as what its hand says is.
	h := open(t, trusting(t, good, host.HandConfig{}, ann))
	if s := h.Hands()[0].Signer; s.Key != ann.Public() || !s.Expires.Equal(signedAt.Add(time.Hour)) || boundary.Neutral(s.Comment) != "release 1" || !strings.Contains(s.Comment.Render(), "hand://mirror") {
		t.Errorf("%+v", s)
	}
}

// Bundled hands are part of the program and need nothing.
func TestBundledHandsNeedNoSignature(t *testing.T) {
	config := host.Config{Trust: host.TrustConfig{Keys: map[string]string{"ann": signer(t).Public().String()}}}
	config.Hands = map[string]host.HandConfig{"calendar": {Grant: host.GrantConfig{Files: map[string]string{"calendars": t.TempDir()}}}}
	if h := open(t, config); h.Hands()[0].Signer != nil {
		t.Errorf("%+v", h.Hands()[0].Signer)
	}
}

// A reload takes over keys and the files that hold them, and looks at each hand again
// that they are about.
func TestReloadTakesOverTrust(t *testing.T) {
	ann, bob := signer(t), signer(t)
	now := signedAt
	config := trusting(t, signedBy(t, ann, signature.Options{Expires: signedAt.Add(time.Hour)}), host.HandConfig{}, ann)
	config.Now = func() time.Time { return now }
	file := filepath.Join(t.TempDir(), "ann.pub")
	keep := func(key signature.PrivateKey) {
		t.Helper()
		if err := os.WriteFile(file, key.Public().File(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := open(t, config)
	same, err := h.Reload(t.Context(), config)
	if err != nil || len(same.Changed) > 0 {
		t.Errorf("with what it has: %+v, %v", same, err)
	}
	keyed := func(keys map[string]string) host.Config {
		c := config
		c.Trust.Keys = maps.Clone(keys)
		return c
	}
	keep(ann)
	if got, err := h.Reload(t.Context(), keyed(map[string]string{"ann": file})); err != nil || h.Hands()[0].Signer.Name != "ann" || len(got.Restart) > 0 {
		t.Errorf("from a file: %+v, %v: %+v", got, err, h.Hands()[0].Signer)
	}
	// The path is the same, what is there is not.
	keep(bob)
	if _, err := h.Reload(t.Context(), keyed(map[string]string{"ann": file})); !errors.Is(err, signature.ErrUnknownKey) {
		t.Errorf("another key in the file: %v", err)
	}
	if len(h.Hands()) != 1 || h.Hands()[0].Signer.Name != "ann" || len(h.Config().Trust.Keys) != 1 {
		t.Errorf("a reload that failed has changed %+v", h.Hands())
	}
	if _, err := h.Reload(t.Context(), keyed(nil)); err != nil || h.Hands()[0].Signer.Name != "" {
		t.Errorf("without keys: %v, %+v", err, h.Hands()[0].Signer)
	}
	if _, err := h.Reload(t.Context(), config); err != nil || h.Hands()[0].Signer.Name != "author-a" {
		t.Errorf("with the key again: %v, %+v", err, h.Hands()[0].Signer)
	}
	now = now.Add(time.Hour)
	if _, err := h.Reload(t.Context(), config); !errors.Is(err, signature.ErrExpired) {
		t.Errorf("when it is over: %v", err)
	}
}

func TestTrustIsChecked(t *testing.T) {
	dir := t.TempDir()
	ann := signer(t).Public()
	if err := os.WriteFile(filepath.Join(dir, "ann.pub"), ann.File(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "long.pub"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for written, want := range map[string]string{
		"[trust.keys]\nann = \"" + ann.String() + "\"":                             "",
		"[trust.keys]\nann = \"ann.pub\"":                                          "",
		"[trust]\nkeys = [\"" + ann.String() + "\"]":                               "trust.keys",
		"[trust.keys]\nann = \"\"":                                                 "trust.keys.ann: write a minisign public key",
		"[trust.keys]\nAnn = \"ann.pub\"":                                          "trust.keys.Ann: a key's name",
		"[trust.keys]\nann = \"RWnonsense\"":                                       "trust.keys.ann: not a usable key",
		"[trust.keys]\nann = \"absent.pub\"":                                       "trust.keys.ann: read the public key",
		"[trust.keys]\nann = \".\"":                                                "trust.keys.ann: read the public key",
		"[trust.keys]\nann = \"long.pub\"":                                         "trust.keys.ann: " + filepath.Join(dir, "long.pub"),
		"[trust.keys]\na = \"" + ann.String() + "\"\nb = \"" + ann.String() + "\"": "trust.keys.b: it is the key that trust.keys.a has",
		"[hands.calendar]\nunsigned = true":                                        "hands.calendar.unsigned: add digest",
	} {
		config, err := host.ParseConfig([]byte(written), dir)
		if err == nil {
			var keys map[string]signature.PublicKey
			if keys, err = config.TrustedKeys(); err == nil && keys["ann"] != ann {
				t.Errorf("%s: %v", written, keys)
			}
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", written, err, want)
		}
	}
	config := trusting(t, nil, host.HandConfig{Unsigned: true, Digest: "sha256:0"})
	if notes := config.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "hands.mirror.unsigned") {
		t.Errorf("%q", notes)
	}
}
