package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// document is the interface as it is written down; every answer that a test gets
// is held against it.
var document = readDocument()

// described is an OpenAPI document.
type described struct {
	root  map[string]any
	paths map[string]any
}

func readDocument() described {
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		panic(err)
	}
	return described{root, root["paths"].(map[string]any)}
}

// resolve follows a reference into the document.
func (d described) resolve(v any) map[string]any {
	object, _ := v.(map[string]any)
	for {
		ref, ok := object["$ref"].(string)
		if !ok {
			return object
		}
		var at any = d.root
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[name]
		}
		found, ok := at.(map[string]any)
		if !ok {
			panic("openapi.json: " + ref + " names nothing")
		}
		object = found
	}
}

// operation finds the operation of a request, by the path with the most literal
// segments.
func (d described) operation(method, target string) map[string]any {
	if method == "HEAD" {
		method = "GET"
	}
	path, _, _ := strings.Cut(target, "?")
	segments := strings.Split(path, "/")
	best, literals := "", -1
	for template, item := range d.paths {
		parts := strings.Split(template, "/")
		if len(parts) != len(segments) || item.(map[string]any)[strings.ToLower(method)] == nil {
			continue
		}
		n := 0
		for i, part := range parts {
			switch {
			case part == segments[i]:
				n++
			case !strings.HasPrefix(part, "{") || segments[i] == "":
				n = math.MinInt
			}
		}
		if n > literals {
			best, literals = template, n
		}
	}
	if best == "" {
		return nil
	}
	return d.paths[best].(map[string]any)[strings.ToLower(method)].(map[string]any)
}

// hold fails the test unless an answer is one that the document tells of.
func (d described) hold(t *testing.T, r request, a answer) {
	t.Helper()
	if err := d.check(r, a); err != nil {
		t.Errorf("%s %s: %d: %v\n%s", r.method, shortened(r.path), a.status, err, shortened(a.body))
	}
}

func (d described) check(r request, a answer) error {
	operation := d.operation(r.method, r.path)
	if operation == nil {
		if a.status < 400 {
			return fmt.Errorf("the document has no such operation")
		}
		return d.fits(d.resolve(map[string]any{"$ref": "#/components/schemas/Problem"}), decoded(a.body), "body")
	}
	responses := operation["responses"].(map[string]any)
	entry, ok := responses[strconv.Itoa(a.status)]
	if !ok {
		if entry, ok = responses["default"]; !ok || a.status < 400 {
			return fmt.Errorf("the document does not know this status")
		}
	}
	response := d.resolve(entry)
	for name := range object(response["headers"]) {
		if a.header.Get(name) == "" {
			return fmt.Errorf("there is no header %s", name)
		}
	}
	content, has := response["content"].(map[string]any)
	if !has || r.method == "HEAD" {
		if a.body != "" {
			return fmt.Errorf("it has a body, and the document has none")
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || content[kind] == nil {
		return fmt.Errorf("type %q is none of %v", a.header.Get("Content-Type"), slices.Sorted(maps.Keys(content)))
	}
	schema := d.resolve(content[kind].(map[string]any)["schema"])
	if kind != "application/json" && kind != "application/problem+json" {
		return d.fits(schema, a.body, "body")
	}
	return d.fits(schema, decoded(a.body), "body")
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func decoded(body string) any {
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return err
	}
	return v
}

// annotations say nothing of whether a value fits.
var annotations = []string{"description", "default", "title", "examples"}

// fits holds a value against a schema, of which it knows every keyword that the
// document uses; it is stricter than JSON Schema where a schema says nothing of
// other properties: there may be none.
func (d described) fits(schema map[string]any, value any, at string) error {
	if err, ok := value.(error); ok {
		return fmt.Errorf("%s: %w", at, err)
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		rule := schema[keyword]
		wrong := func() error { return fmt.Errorf("%s: %v is not of %s %v", at, value, keyword, rule) }
		switch keyword {
		case "$ref":
			if err := d.fits(d.resolve(schema), value, at); err != nil {
				return err
			}
		case "type":
			types, several := rule.([]any)
			if !several {
				types = []any{rule}
			}
			if !slices.ContainsFunc(types, func(t any) bool { return isOfType(value, t.(string)) }) {
				return wrong()
			}
		case "const":
			if value != rule {
				return wrong()
			}
		case "enum":
			if !slices.Contains(rule.([]any), value) {
				return wrong()
			}
		case "oneOf":
			n := 0
			for _, one := range rule.([]any) {
				if d.fits(one.(map[string]any), value, at) == nil {
					n++
				}
			}
			if n != 1 {
				return wrong()
			}
		case "format":
			if text, ok := value.(string); ok && !isOfFormat(text, rule.(string)) {
				return wrong()
			}
		case "minimum", "maximum":
			number, ok := value.(float64)
			if bound := rule.(float64); ok && (keyword == "minimum" && number < bound || keyword == "maximum" && number > bound) {
				return wrong()
			}
		case "minLength", "maxLength":
			text, ok := value.(string)
			n, bound := utf8.RuneCountInString(text), int(rule.(float64))
			if ok && (keyword == "minLength" && n < bound || keyword == "maxLength" && n > bound) {
				return wrong()
			}
		case "items":
			list, _ := value.([]any)
			for i, item := range list {
				if err := d.fits(rule.(map[string]any), item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
					return err
				}
			}
		case "required":
			if o, ok := value.(map[string]any); ok {
				for _, name := range rule.([]any) {
					if _, there := o[name.(string)]; !there {
						return fmt.Errorf("%s: there is no %v", at, name)
					}
				}
			}
		case "properties", "additionalProperties":
			// below, together
		default:
			if !slices.Contains(annotations, keyword) {
				return fmt.Errorf("%s: this test does not know the keyword %s", at, keyword)
			}
		}
	}
	o, isObject := value.(map[string]any)
	_, isOpen := schema["additionalProperties"]
	if properties := object(schema["properties"]); isObject && (properties != nil || isOpen) {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			here := at + "." + name
			if rule, known := properties[name]; known {
				if err := d.fits(rule.(map[string]any), o[name], here); err != nil {
					return err
				}
				continue
			}
			switch others := schema["additionalProperties"].(type) {
			case map[string]any:
				if err := d.fits(others, o[name], here); err != nil {
					return err
				}
			case bool:
				if !others {
					return fmt.Errorf("%s may not be there", here)
				}
			default:
				return fmt.Errorf("%s is not written down", here)
			}
		}
	}
	return nil
}

func isOfType(value any, name string) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}

func isOfFormat(text, name string) bool {
	switch name {
	case "uuid":
		_, err := memory.ParseID[memory.UserID](text)
		return err == nil
	case "date-time":
		_, err := time.Parse(time.RFC3339Nano, text)
		return err == nil
	case "uri-reference":
		_, err := url.Parse(text)
		return err == nil
	}
	return false
}

var inBraces = regexp.MustCompile(`\{([a-z]+)\}`)

// U7: what is routed is written down, and what is written down is routed, with the
// same parameters and the same need of a token.
func TestDocumentAndRoutesAgree(t *testing.T) {
	routed := map[string]control.Route{}
	for _, r := range control.Routes() {
		routed[r.Pattern] = r
	}
	ids := map[string]bool{}
	written := 0
	for path, item := range document.paths {
		item := item.(map[string]any)
		shared, _ := item["parameters"].([]any)
		for method, operation := range item {
			if method == "parameters" {
				continue
			}
			written++
			pattern := strings.ToUpper(method) + " " + path
			route, ok := routed[pattern]
			if !ok {
				t.Errorf("%s is written down, and there is no such route", pattern)
				continue
			}
			delete(routed, pattern)
			operation := operation.(map[string]any)
			id, _ := operation["operationId"].(string)
			if id == "" || ids[id] {
				t.Errorf("%s has no operationId of its own: %q", pattern, id)
			}
			ids[id] = true
			if security, has := operation["security"]; has != route.Tokenless || has && len(security.([]any)) != 0 {
				t.Errorf("%s: security %v, and the route is tokenless: %v", pattern, security, route.Tokenless)
			}
			if route.Admin != strings.Contains(operation["summary"].(string), "(admin)") {
				t.Errorf("%s: %q, and the route is for admin: %v", pattern, operation["summary"], route.Admin)
			}
			own, _ := operation["parameters"].([]any)
			inPath, inQuery := map[string]bool{}, []string(nil)
			for _, p := range append(slices.Clone(shared), own...) {
				switch p := document.resolve(p); p["in"] {
				case "path":
					inPath[p["name"].(string)] = true
				case "query":
					inQuery = append(inQuery, p["name"].(string))
				}
			}
			for _, name := range inBraces.FindAllStringSubmatch(path, -1) {
				if !inPath[name[1]] {
					t.Errorf("%s does not describe {%s}", pattern, name[1])
				}
				delete(inPath, name[1])
			}
			if len(inPath) > 0 {
				t.Errorf("%s describes %v, which its path has not", pattern, inPath)
			}
			slices.Sort(inQuery)
			if !slices.Equal(inQuery, slices.Sorted(slices.Values(route.Parameters))) {
				t.Errorf("%s has the parameters %v, and %v are written down", pattern, route.Parameters, inQuery)
			}
		}
	}
	for pattern := range routed {
		t.Errorf("%s is not written down", pattern)
	}
	if written < 20 {
		t.Errorf("only %d operations: this test looks at the wrong thing", written)
	}
}

// U7: every route gives an answer that the document tells of, of each type that it
// can have.
func TestEveryRouteAnswersAsWritten(t *testing.T) {
	s := serve(t, withCalendar(t))
	session, said := s.say(s.anna, "jeeves", "I have a cat.")
	summary := s.summarise(s.anna, session).String()
	s.extract(s.anna, session, memory.Learnings{Facts: []memory.Learned{{Text: "Has a cat.", Sources: []memory.MessageID{said}}}})
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "cats", Content: "Has a cat.", Sources: []memory.MessageID{said}, ExpiresAt: monday.Add(time.Hour)},
		memory.NewTopic{Name: "cats", Content: "Likes it brief.", OfAgent: true})
	exported := s.want(200, request{method: "GET", path: "/api/users/default/memory/export", token: s.admin}).body
	bodies := map[string]any{
		"PATCH /api/agents/{agent}/config":                    `{"memory_system":"structured"}`,
		"POST /api/users/{user}/chat":                         `{"text":"I have a dog."}`,
		"POST /api/users/{user}/hands/{hand}/query":           `{"question":"What is on?","from":"2026-03-23T00:00:00Z","max_tokens":500}`,
		"POST /api/users/{user}/memory/import":                exported,
		"PUT /api/users/{user}/memory/{topic}":                `{"content":"Has a dog.","expires_at":"2026-03-24T09:00:00+01:00"}`,
		"PUT /api/users/{user}/agents/{agent}/memory/{topic}": `{"content":"Likes it long."}`,
	}
	// What removes something comes last, and what removes most at the end.
	routes := control.Routes()
	slices.SortStableFunc(routes, func(a, b control.Route) int {
		rank := func(r control.Route) int {
			if !strings.HasPrefix(r.Pattern, "DELETE ") {
				return 0
			}
			return 100 - strings.Count(r.Pattern, "/")
		}
		return rank(a) - rank(b)
	})
	for _, route := range routes {
		method, path, _ := strings.Cut(route.Pattern, " ")
		r := request{method: method, token: s.admin, body: bodies[route.Pattern]}
		r.path = strings.NewReplacer("{user}", "default", "{agent}", "jeeves", "{topic}", "cats", "{session}", session.String(), "{hand}", "calendar", "{summary}", summary).Replace(path)
		s.want(200, r)
		if method == "GET" {
			r.method = "HEAD"
			if a := s.do(r); a.status != 200 || a.body != "" {
				t.Errorf("HEAD %s: %v", r.path, a)
			}
		}
		if method == "PUT" || method == "PATCH" || method == "POST" {
			// The body that works is one that the document allows, and one that it
			// does not is refused.
			operation := document.operation(method, r.path)
			schema := document.resolve(object(object(object(operation["requestBody"])["content"])["application/json"])["schema"])
			if err := document.fits(schema, decoded(r.body.(string)), "request"); err != nil {
				t.Errorf("%s: %v", route.Pattern, err)
			}
			r.body = `{"unknown":1}`
			if document.fits(schema, decoded(r.body.(string)), "request") == nil {
				t.Errorf("%s: the document allows %s", route.Pattern, r.body)
			}
			s.want(400, r)
		}
	}
}

// The document itself is what is served.
func TestDocumentIsServed(t *testing.T) {
	s := serve(t)
	written, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if a := s.want(200, request{method: "GET", path: "/openapi.json"}); a.body != string(written) {
		t.Error("what is served is not what is written")
	}
	if version := document.root["openapi"]; version != "3.1.1" {
		t.Errorf("openapi %v", version)
	}
	// Every part is used by something, and every reference names a part.
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && !used[ref] {
				used[ref] = true
				walk(document.resolve(v))
			}
			for name, part := range v {
				if name != "$ref" {
					walk(part)
				}
			}
		case []any:
			for _, part := range v {
				walk(part)
			}
		}
	}
	walk(document.root["paths"])
	for kind, parts := range document.root["components"].(map[string]any) {
		for name := range parts.(map[string]any) {
			if kind != "securitySchemes" && !used["#/components/"+kind+"/"+name] {
				t.Errorf("nothing uses %s %s", kind, name)
			}
		}
	}
}

// The test above would be worth nothing if everything fitted.
func TestFitsRefuses(t *testing.T) {
	topic := map[string]any{"$ref": "#/components/schemas/Topic"}
	good := `{"id":"01a1ff44-2749-7b8d-9a72-51fc9baf4b2e","topic":"cats","content":"x","valid_from":"2026-03-23T09:00:00Z","updated_at":"2026-03-23T09:00:00Z"}`
	if err := document.fits(topic, decoded(good), "good"); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ old, new string }{
		{`"topic":"cats",`, ``}, {`"cats"`, `5`}, {`2026-03-23T09:00:00Z`, `monday`}, {`01a1ff44-2749`, `x`}, {`"content"`, `"contents"`}, {`}`, `,"message_ids":["x"]}`}, {`}`, `,"x":1}`}, {`}`, ``},
	} {
		if bad := strings.Replace(good, change.old, change.new, 1); document.fits(topic, decoded(bad), "bad") == nil {
			t.Errorf("%s fits", bad)
		}
	}
}
