package signature

import (
	"crypto/sha256"
	"testing"
)

// SignAsItStands signs a module without taking anything out of it.
func SignAsItStands(t testing.TB, module []byte, key PrivateKey) []byte {
	t.Helper()
	p := payload{key: key.Public(), digest: sha256.Sum256(module[len(preamble):])}
	var err error
	if p.signature, err = key.sign(message(p.digest)); err != nil {
		t.Fatal(err)
	}
	return append(p.beginning(), module[len(preamble):]...)
}

// Reencode reads a payload and writes what was read.
func Reencode(data []byte) ([]byte, error) {
	p, err := parse(data)
	if err != nil {
		return nil, err
	}
	return p.encode(), nil
}
