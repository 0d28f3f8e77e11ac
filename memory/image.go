package memory

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of Image.
const (
	// MaxImageURL is the most bytes of an image's address.
	MaxImageURL = 2048
	// MaxImageData is the most bytes of an image.
	MaxImageData = 20 << 20
)

// imageTypes are those that every provider takes.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// ShownImage stands for an image where there are only words.
const ShownImage = "[an image]"

// Image returns a picture: its bytes, at most MaxImageData, of the type image/png,
// image/jpeg, image/gif or image/webp; or without bytes and type where it is, a URL
// of http or https of at most MaxImageURL bytes. Another cannot be encoded: MarshalJSON
// says why, with an error that wraps ErrInvalid. What it costs in a prompt does not
// depend on its size.
func Image(mediaType string, data []byte, url string) Block {
	b := Block{Type: BlockImage}
	switch {
	case url != "" && (mediaType != "" || len(data) > 0):
		b.refused = invalid("an image is its bytes or a URL, not both")
	case url != "":
		if b.refused = checkImageURL(url); b.refused == nil {
			var encoded []byte
			encoded, b.refused = encodeImageURL(url)
			b.original = string(encoded)
		}
	case !slices.Contains(imageTypes, mediaType):
		b.refused = invalid("an image of type " + quote(mediaType) + " is not one of " + strings.Join(imageTypes, ", "))
	case len(data) == 0 || len(data) > MaxImageData:
		b.refused = invalid(fmt.Sprintf("an image of %d bytes: it has 1 to %d", len(data), MaxImageData))
	default:
		before, after := imageData(mediaType)
		b.original = before + base64.StdEncoding.EncodeToString(data) + after
	}
	return b
}

// imageData is what stands around an image's bytes.
func imageData(mediaType string) (before, after string) {
	return `{"type":"image","media_type":"` + mediaType + `","data":"`, `"}`
}

func encodeImageURL(url string) ([]byte, error) {
	return encodeLine(struct {
		Type BlockType `json:"type"`
		URL  string    `json:"url"`
	}{BlockImage, url})
}

func checkImageURL(text string) error {
	if len(text) > MaxImageURL {
		return invalid(fmt.Sprintf("an image's URL has %d bytes, at most %d are allowed", len(text), MaxImageURL))
	}
	u, err := url.Parse(text)
	if err != nil || !utf8.ValidString(text) || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return invalid("an image's URL is not one of http or https")
	}
	return nil
}

// ParseImage reads a block that Image made, from the bytes that it is stored as; ok
// is false for any other, be it an image that came in a form of its own. The time is
// linear.
func ParseImage(raw json.RawMessage) (mediaType string, data []byte, url string, ok bool) {
	for _, mediaType := range imageTypes {
		before, after := imageData(mediaType)
		text, found := bytes.CutPrefix(raw, []byte(before))
		if !found {
			continue
		}
		text, found = bytes.CutSuffix(text, []byte(after))
		// The decoder would skip line ends.
		if !found || len(text) == 0 || len(text) > base64.StdEncoding.EncodedLen(MaxImageData) || bytes.ContainsAny(text, "\r\n") {
			return "", nil, "", false
		}
		data, err := base64.StdEncoding.Strict().AppendDecode(nil, text)
		if err != nil || len(data) > MaxImageData {
			return "", nil, "", false
		}
		return mediaType, data, "", true
	}
	// Each byte of a URL is encoded in at most 6.
	if len(raw) > 6*MaxImageURL+len(`{"type":"image","url":""}`) {
		return "", nil, "", false
	}
	var said struct{ URL string }
	if json.Unmarshal(raw, &said) != nil || checkImageURL(said.URL) != nil {
		return "", nil, "", false
	}
	if made, err := encodeImageURL(said.URL); err != nil || !bytes.Equal(made, raw) {
		return "", nil, "", false
	}
	return "", nil, said.URL, true
}
