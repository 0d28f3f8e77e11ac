package host_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
)

// keysOf adds the keys of a section of the configuration and of those below it, with
// the words that docs/configuration.md has for their types.
func keysOf(section string, of reflect.Type, to map[string]string) {
	for field := range of.Fields() {
		key := field.Tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		path := key
		if section != "" {
			path = section + "." + key
		}
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.Struct:
			keysOf(path, kind, to)
		case reflect.Map:
			// A map of texts has names for keys, which the docs write in capitals.
			switch of := kind.Elem(); {
			case of.Kind() == reflect.Struct && key == "hands":
				keysOf(path+".NAME", of, to)
			case of.Kind() == reflect.Struct:
				keysOf(path+".SECRET", of, to)
			default:
				to[path+".*"] = map[bool]string{true: "string", false: "per manifest"}[of.Kind() == reflect.String]
			}
		case reflect.Slice:
			if kind.Elem().Kind() == reflect.Struct {
				keysOf(path, kind.Elem(), to)
			} else {
				to[path] = "list"
			}
		case reflect.String:
			to[path] = "string"
		case reflect.Bool:
			to[path] = "boolean"
		case reflect.Float64:
			to[path] = "number"
		default:
			to[path] = "integer"
		}
	}
}

var documentedKey = regexp.MustCompile("`([^`]*)`")

// The table of docs/configuration.md has each key that there is, with its type and
// its default, and no other.
func TestConfigurationIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys, documented := map[string]string{}, map[string]bool{}
	keysOf("", reflect.TypeFor[host.Config](), keys)
	section := ""
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(line, " | ")
		if len(columns) < 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, quoted := range documentedKey.FindAllStringSubmatch(columns[0], -1) {
			key := quoted[1]
			if strings.HasPrefix(key, "[") {
				section = strings.Trim(key, "[]")
				continue
			}
			path := section + "." + key
			if strings.ToUpper(key) == key {
				path = section + ".*"
			}
			if documented[path] {
				t.Errorf("%s is documented twice", path)
			}
			documented[path] = true
			if kind, ok := keys[path]; !ok || columns[1] != kind {
				t.Errorf("docs/configuration.md has %s, of the type %q; there it is %q", path, columns[1], kind)
			}
			if strings.TrimSpace(columns[2]) == "" || strings.TrimSpace(strings.TrimSuffix(strings.Join(columns[3:], ""), "|\n")) == "" {
				t.Errorf("docs/configuration.md does not say what %s is by default, or means", path)
			}
		}
	}
	for path := range keys {
		if !documented[path] {
			t.Errorf("docs/configuration.md lacks %s", path)
		}
	}
	if len(keys) < 60 {
		t.Errorf("%d keys", len(keys))
	}
}
