package signature_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/registry/signature"
)

func TestKeysAreReadAsTheyWereWritten(t *testing.T) {
	ann := key(t, "ann")
	public := ann.Public()
	if text := public.String(); len(text) != 56 || !strings.HasPrefix(text, "RW") {
		t.Errorf("the public key is %s", text)
	}
	for _, text := range []string{public.String(), " " + public.String() + "\r\n", string(public.File()), strings.ReplaceAll(string(public.File()), "\n", "\r\n")} {
		if again, err := signature.ParsePublicKey(text); err != nil || again != public {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	}
	file, err := ann.File()
	if err != nil || signature.IsEncrypted(file) {
		t.Fatalf("%s, %v", file, err)
	}
	if again, err := signature.ParsePrivateKey(file, ""); err != nil || again.Public() != public {
		t.Errorf("%v, %v", again.Public(), err)
	}
	if ann.Public() == key(t, "bob").Public() {
		t.Error("two keys are one")
	}
}

func TestWhatIsNoKey(t *testing.T) {
	public := key(t, "ann").Public().String()
	file, err := key(t, "ann").File()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "RW", public[:55], public + "AAAA", "RE" + public[2:], "age1" + public, string(file),
		"untrusted comment: x\n" + public + "\n" + public, strings.Repeat("a", 1<<20),
	} {
		if got, err := signature.ParsePublicKey(text); !errors.Is(err, signature.ErrKey) {
			t.Errorf("%.60q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", public, string(file[:100]), string(file) + string(file), strings.Repeat("a", 1<<20)} {
		if _, err := signature.ParsePrivateKey([]byte(text), ""); !errors.Is(err, signature.ErrKey) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
	if _, err := key(t, "ann").Encrypt(""); err == nil {
		t.Error("a key is encrypted with no password")
	}
}

// A key of which a part was changed signs nothing.
func TestADamagedKeySignsNothing(t *testing.T) {
	file, err := key(t, "ann").File()
	if err != nil {
		t.Fatal(err)
	}
	comment, text, _ := strings.Cut(strings.TrimSpace(string(file)), "\n")
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	packed[70] ^= 1 // of the seed; the public key follows it
	damaged, err := signature.ParsePrivateKey([]byte(comment+"\n"+base64.StdEncoding.EncodeToString(packed)), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signature.Sign(calendar(t), damaged, signature.Options{}); !errors.Is(err, signature.ErrKey) {
		t.Errorf("%v", err)
	}
}

// minisign runs the program of that name, with a password that it asks for.
func minisign(t *testing.T, dir string, passwords string, arguments ...string) string {
	t.Helper()
	path, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("needs minisign: install the package minisign")
	}
	c := exec.Command(path, arguments...)
	c.Dir = dir
	c.Stdin = strings.NewReader(passwords)
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("minisign %q: %v\n%s", arguments, err, output)
	}
	return string(output)
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Keys of minisign sign modules, and minisign signs with keys that were made here.
func TestKeysAreThoseOfMinisign(t *testing.T) {
	dir := t.TempDir()
	minisign(t, dir, "", "-G", "-W", "-p", "theirs.pub", "-s", "theirs.key")
	theirs, err := signature.ParsePrivateKey(read(t, dir, "theirs.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	public, err := signature.ParsePublicKey(string(read(t, dir, "theirs.pub")))
	if err != nil || public != theirs.Public() || !bytes.Contains(read(t, dir, "theirs.pub"), []byte(public.ID())) {
		t.Errorf("%v of %v, %v", public, theirs.Public(), err)
	}
	if _, err := signature.Verify(sign(t, calendar(t), theirs, signature.Options{}), []signature.PublicKey{public}, now); err != nil {
		t.Error(err)
	}

	ours := key(t, "ann")
	file, err := ours.File()
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "ours.key", file)
	write(t, dir, "ours.pub", ours.Public().File())
	write(t, dir, "notes.txt", []byte("what is in this release\n"))
	minisign(t, dir, "", "-S", "-s", "ours.key", "-m", "notes.txt")
	minisign(t, dir, "", "-V", "-p", "ours.pub", "-m", "notes.txt")
	if said := minisign(t, dir, "", "-V", "-P", ours.Public().String(), "-m", "notes.txt"); !strings.Contains(said, "verified") {
		t.Error(said)
	}
}

// What a password opens here opens with it there, and the other way round.
func TestPasswordsAreThoseOfMinisign(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("each password takes a second and 1 GiB of memory, and far more when it is watched")
	}
	dir := t.TempDir()
	ours := key(t, "ann")
	file, err := ours.Encrypt("open sesame")
	if err != nil || !signature.IsEncrypted(file) {
		t.Fatalf("%s, %v", file, err)
	}
	if again, err := signature.ParsePrivateKey(file, "open sesame"); err != nil || again.Public() != ours.Public() {
		t.Errorf("%v", err)
	}
	if _, err := signature.ParsePrivateKey(file, "open barley"); !errors.Is(err, signature.ErrKey) || !strings.Contains(err.Error(), "password") {
		t.Errorf("with another password: %v", err)
	}
	write(t, dir, "ours.key", file)
	write(t, dir, "notes.txt", []byte("what is in this release\n"))
	minisign(t, dir, "open sesame\n", "-S", "-s", "ours.key", "-m", "notes.txt")
	minisign(t, dir, "", "-V", "-P", ours.Public().String(), "-m", "notes.txt")
	minisign(t, dir, "open wheat\nopen wheat\n", "-G", "-p", "theirs.pub", "-s", "theirs.key")
	theirs, err := signature.ParsePrivateKey(read(t, dir, "theirs.key"), "open wheat")
	if err != nil || !bytes.Contains(read(t, dir, "theirs.pub"), []byte(theirs.Public().String())) {
		t.Errorf("%v", err)
	}
}
