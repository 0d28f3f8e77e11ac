// Package vectors carries the published vectors of the ABI: queries.json, the
// questions that the conformance kit asks any hand, and sample.json, what the
// sample hand of every SDK answers. Package abi/conformance reads both; they are
// of use to a kit in any other language.
package vectors

import "embed"

// Files holds queries.json and sample.json.
//
//go:embed *.json
var Files embed.FS
