package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets/app.css assets/app.js assets/htmx.min.js assets/htmx.LICENSE assets/icon.svg
var assetFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// asset is one embedded file as browsers get it.
type asset struct {
	kind string
	data []byte
	// tag is of the content, so that what bears it in its path may be kept for ever.
	tag string
}

var assetKinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".LICENSE": "text/plain; charset=utf-8",
}

// assets are the embedded files by name.
var assets = func() map[string]asset {
	all := map[string]asset{}
	entries, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, entry := range entries {
		data, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		all[entry.Name()] = asset{kind: assetKinds[path.Ext(entry.Name())], data: data, tag: hex.EncodeToString(sum[:8])}
	}
	return all
}()

// assetPath is where a file is found: its path changes with its content.
func assetPath(name string) (string, error) {
	a, ok := assets[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %q", name)
	}
	return "/assets/" + a.tag + "/" + name, nil
}

// serveAsset answers with a file under the path of its content, and of no other.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("name")]
	if !ok || r.PathValue("tag") != a.tag {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", `"`+a.tag+`"`)
	hurry(w)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.data))
}

// pages are the templates by the name of their file: the layout and the parts that
// pages share, with the page's own "main" in each.
var pages = func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		base := path.Base(name)
		if base == "layout.html" || base == "parts.html" {
			continue
		}
		all[base[:len(base)-len(".html")]] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, name))
	}
	return all
}()
