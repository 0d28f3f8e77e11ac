package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
)

// parseJSON reads JSON Feed 1.0 and 1.1 (https://www.jsonfeed.org), item by
// item.
func (f *feed) parseJSON(text []byte, base *url.URL) error {
	defer func() { f.work -= len(text) + 4*tokenWork*f.seen }()
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	known := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return atEnd(err)
		}
		switch key {
		case "version":
			var version string
			if err := decodeJSON(d, &version); err != nil {
				return err
			}
			known = strings.Contains(version, "jsonfeed.org/version/")
		case "title":
			var title string
			if err := decodeJSON(d, &title); err != nil {
				return err
			}
			f.setTitle(title)
		case "items":
			if err := f.parseJSONItems(d, base); err != nil {
				return err
			}
		default:
			var skipped json.RawMessage
			if err := decodeJSON(d, &skipped); err != nil {
				return err
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return atEnd(err)
	}
	if !known && f.seen == 0 {
		return errNoFeed
	}
	return nil
}

// decodeJSON is Decode that leaves out what is of another type.
func decodeJSON(d *json.Decoder, into any) error {
	err := d.Decode(into)
	if errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil
	}
	return atEnd(err)
}

type jsonItem struct {
	ID            string `json:"id"`
	URL           string `json:"url"`
	ExternalURL   string `json:"external_url"`
	Title         string `json:"title"`
	ContentHTML   string `json:"content_html"`
	ContentText   string `json:"content_text"`
	Summary       string `json:"summary"`
	DatePublished string `json:"date_published"`
	DateModified  string `json:"date_modified"`
}

func (f *feed) parseJSONItems(d *json.Decoder, base *url.URL) error {
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return cmp.Or(atEnd(err), errNoFeed)
	}
	for d.More() {
		var j jsonItem
		if err := decodeJSON(d, &j); err != nil {
			return err
		}
		var i item
		i.link = cmp.Or(link(base, j.URL), link(base, j.ExternalURL))
		published, _ := parseDate(j.DatePublished, f.window.location)
		updated, _ := parseDate(j.DateModified, f.window.location)
		words := func() (string, string) {
			return j.Title, cmp.Or(j.Summary, j.ContentText, plainText(j.ContentHTML[:min(len(j.ContentHTML), maxText)], false))
		}
		if err := f.add(i, published, updated, words); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return atEnd(err)
}

func atEnd(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}
