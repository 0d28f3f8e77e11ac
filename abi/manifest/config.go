package manifest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

func checkConfigKey(name string, key ConfigKey) error {
	if !validConfigName(name) {
		return fmt.Errorf("config.%q: use 1 to 63 of a-z, 0-9, - and _", name)
	}
	switch key.Type {
	case TypeString, TypeInteger, TypeNumber, TypeBoolean, TypeList:
	default:
		return fmt.Errorf("config.%s: type %q: use string, integer, number, boolean or list", name, key.Type)
	}
	if key.Default == nil {
		return nil
	}
	if key.Required {
		return fmt.Errorf("config.%s: a required key has no default", name)
	}
	if _, err := key.value(key.Default); err != nil {
		return fmt.Errorf("config.%s: default: %w", name, err)
	}
	return nil
}

func validConfigName(name string) bool {
	return ValidName(strings.ReplaceAll(name, "_", "-"))
}

// Configure returns the operator's values with the defaults filled in, each of
// the type that the manifest declares: string, int64, float64, bool, []string.
// Unknown keys, missing required ones and wrong types are errors that name the
// key.
func (m *Manifest) Configure(values map[string]any) (map[string]any, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := m.Config[name]; !ok {
			return nil, fmt.Errorf("config.%s: hand %q has no such key; it has %s", name, m.Name, m.configNames())
		}
	}
	configured := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(m.Config)) {
		key := m.Config[name]
		value, set := values[name]
		if !set {
			value = key.Default
		}
		switch {
		case value != nil:
			typed, err := key.value(value)
			if err != nil {
				return nil, fmt.Errorf("config.%s: %w", name, err)
			}
			configured[name] = typed
		case key.Required:
			return nil, fmt.Errorf("config.%s: hand %q needs a value of type %s", name, m.Name, key.Type)
		}
	}
	return configured, nil
}

func (m *Manifest) configNames() string {
	if len(m.Config) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m.Config)), ", ")
}

func (k ConfigKey) value(v any) (any, error) {
	switch k.Type {
	case TypeString:
		if s, ok := v.(string); ok {
			return s, nil
		}
	case TypeBoolean:
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case TypeInteger:
		if n, ok := v.(int64); ok {
			return n, nil
		}
	case TypeNumber:
		switch n := v.(type) {
		case float64:
			if !math.IsNaN(n) && !math.IsInf(n, 0) {
				return n, nil
			}
		case int64:
			return float64(n), nil
		}
	case TypeList:
		if list, ok := v.([]string); ok {
			return list, nil
		}
		if list, ok := v.([]any); ok {
			strs := make([]string, 0, len(list))
			for _, item := range list {
				s, ok := item.(string)
				if !ok {
					return nil, fmt.Errorf("needs a list of strings, has a %T in it", item)
				}
				strs = append(strs, s)
			}
			return strs, nil
		}
	}
	return nil, fmt.Errorf("needs a value of type %s, is %T", k.Type, v)
}
