package memory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

func TestImages(t *testing.T) {
	for _, test := range []struct {
		mediaType string
		data      []byte
		url       string
		want      string
	}{
		{"image/png", []byte("\x89PNG"), "", `{"type":"image","media_type":"image/png","data":"iVBORw=="}`},
		{"image/jpeg", []byte{0xff, 0xff, 0xfe}, "", `{"type":"image","media_type":"image/jpeg","data":"///+"}`},
		{"image/gif", []byte{0}, "", `{"type":"image","media_type":"image/gif","data":"AA=="}`},
		{"image/webp", []byte("RIFF"), "", `{"type":"image","media_type":"image/webp","data":"UklGRg=="}`},
		{"", nil, "https://example.com/a.png?x=<1>&y=\u2028ä\"", `{"type":"image","url":"https://example.com/a.png?x=<1>&y=\u2028ä\""}`},
		{"", []byte{}, "http://[::1]:8080/", `{"type":"image","url":"http://[::1]:8080/"}`},
	} {
		b := memory.Image(test.mediaType, test.data, test.url)
		got := marshal(t, b)
		if got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
		encoded, read, err := memory.Encode([]memory.Block{b})
		if err != nil || encoded[0] != test.want || read[0].Type != memory.BlockImage || marshal(t, read[0]) != test.want {
			t.Errorf("%s is stored as %s and read as %s, %v", test.want, encoded, marshal(t, read[0]), err)
		}
		mediaType, data, url, ok := memory.ParseImage([]byte(encoded[0]))
		if !ok || mediaType != test.mediaType || !bytes.Equal(data, test.data) || url != test.url {
			t.Errorf("%s is %q, %q, %q, %t", test.want, mediaType, data, url, ok)
		}
		if b.IsLarge() || memory.Count([]memory.Block{b}) != memory.Count([]memory.Block{memory.Text(memory.ShownImage)})+memory.ImageTokens {
			t.Errorf("%s costs %d", test.want, memory.Count([]memory.Block{b}))
		}
	}
}

// What is no image says why, and is not stored.
func TestImagesThatCannotBeMade(t *testing.T) {
	for name, test := range map[string]struct {
		mediaType string
		data      []byte
		url       string
		why       string
	}{
		"nothing":          {"", nil, "", "type"},
		"no bytes":         {"image/png", nil, "", "0 bytes"},
		"too many":         {"image/png", make([]byte, memory.MaxImageData+1), "", "bytes"},
		"another type":     {"image/svg+xml", []byte("<svg/>"), "", "svg"},
		"a type in caps":   {"image/PNG", []byte("x"), "", "image/PNG"},
		"a type that ends": {"image/png\",\"x\":\"", []byte("x"), "", "type"},
		"both":             {"image/png", []byte("x"), "https://example.com", "not both"},
		"bytes and a URL":  {"", []byte("x"), "https://example.com", "not both"},
		"a type of a URL":  {"image/png", nil, "https://example.com", "not both"},
		"a file":           {"", nil, "file:///etc/passwd", "http"},
		"data as a URL":    {"", nil, "data:image/png;base64,AAAA", "http"},
		"no host":          {"", nil, "https:///x", "http"},
		"no scheme":        {"", nil, "//example.com/x", "http"},
		"another scheme":   {"", nil, "ftp://example.com", "http"},
		"a line end":       {"", nil, "https://example.com/\n", "http"},
		"no UTF-8":         {"", nil, "https://example.com/\xff", "http"},
		"a long URL":       {"", nil, "https://example.com/" + strings.Repeat("a", memory.MaxImageURL), "bytes"},
	} {
		b := memory.Image(test.mediaType, test.data, test.url)
		_, err := b.MarshalJSON()
		if !errors.Is(err, memory.ErrInvalid) || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := memory.Encode([]memory.Block{b}); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s is encoded: %v", name, err)
		}
		if b.Type != memory.BlockImage || memory.Shown([]memory.Block{b}) != memory.ShownImage {
			t.Errorf("%s is shown as %q", name, memory.Shown([]memory.Block{b}))
		}
	}
}

// An image that came in a form of its own keeps it, and is none to send.
func TestImagesOfOtherForms(t *testing.T) {
	for _, text := range []string{
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`,
		`{"type":"image", "media_type":"image/png","data":"AAAA"}`,
		`{"media_type":"image/png","type":"image","data":"AAAA"}`,
		`{"type":"image","media_type":"image/png","data":"AAA"}`,
		`{"type":"image","media_type":"image/png","data":"AAB="}`,
		`{"type":"image","media_type":"image/png","data":""}`,
		`{"type":"image","media_type":"image/png","data":"AAAA","url":"https://example.com"}`,
		`{"type":"image","media_type":"image/tiff","data":"AAAA"}`,
		`{"type":"image","url":"https://example.com","detail":"low"}`,
		`{"type":"image","url":"https:\/\/example.com"}`,
		`{"type":"image","url":"javascript:alert(1)"}`,
		`{"type":"image","URL":"https://example.com"}`,
		`{"type":"image"}`,
		`{"type":"text","text":"an image"}`,
	} {
		var b memory.Block
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		if got := marshal(t, b); got != text {
			t.Errorf("got  %s\nwant %s", got, text)
		}
		if _, _, _, ok := memory.ParseImage([]byte(text)); ok {
			t.Errorf("%s is taken for one of ours", text)
		}
	}
	for _, broken := range []string{"", "null", "{", "[]", "{\"type\":\"image\",\"media_type\":\"image/png\",\"data\":\"AA\r\nAA\"}"} {
		if _, _, _, ok := memory.ParseImage([]byte(broken)); ok {
			t.Errorf("%q is taken for an image", broken)
		}
	}
}

func TestImageBytesComeBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		mediaType := rapid.SampledFrom([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}).Draw(r, "type")
		data := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(r, "data")
		encoded, err := memory.Image(mediaType, data, "").MarshalJSON()
		if err != nil || !json.Valid(encoded) {
			r.Fatalf("%s, %v", encoded, err)
		}
		if gotType, got, url, ok := memory.ParseImage(encoded); !ok || gotType != mediaType || !bytes.Equal(got, data) || url != "" {
			r.Errorf("%s is %q, %q, %q, %t", encoded, gotType, got, url, ok)
		}
	})
}

// Whatever is taken for an image is one that Image makes, byte for byte.
func FuzzParseImage(f *testing.F) {
	f.Add(`{"type":"image","media_type":"image/png","data":"iVBORw=="}`)
	f.Add(`{"type":"image","url":"https://example.com/a?b=\u2028&c=<d>"}`)
	f.Add(`{"type":"image","media_type":"image/webp","data":"AAA=\n"}`)
	f.Add(`{"type":"image","url":"https://example.com","url":"https://example.com"}`)
	f.Fuzz(func(t *testing.T, text string) {
		mediaType, data, url, ok := memory.ParseImage([]byte(text))
		if !ok {
			if mediaType != "" || data != nil || url != "" {
				t.Errorf("%q is none, and %q, %q, %q", text, mediaType, data, url)
			}
			return
		}
		encoded, err := memory.Image(mediaType, data, url).MarshalJSON()
		if err != nil || string(encoded) != text {
			t.Errorf("%q came back as %q, %v", text, encoded, err)
		}
		var b memory.Block
		if err := b.UnmarshalJSON([]byte(text)); err != nil || b.Type != memory.BlockImage {
			t.Errorf("%q: %+v, %v", text, b, err)
		}
	})
}
