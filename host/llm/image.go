package llm

import (
	"net/url"
	"unicode/utf8"
)

// maxImageURL bounds the bytes of an Image's URL.
const maxImageURL = 8 << 10

// ValidImage reports whether a picture is one that can be sent: Data of a known
// MediaType, or an http or https URL with a host, and not both. What the Data are is
// for the provider to find out.
func ValidImage(i Image) bool {
	if i.URL == "" {
		return len(i.Data) > 0 && imageTypes[i.MediaType]
	}
	if len(i.Data) > 0 || i.MediaType != "" || len(i.URL) > maxImageURL || !utf8.ValidString(i.URL) {
		return false
	}
	u, err := url.Parse(i.URL)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// imageTypes are those that all providers have in common.
var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}
