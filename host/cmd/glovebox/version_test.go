package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
)

// A stamp goes before what the toolchain noted; the revision is always the
// toolchain's.
func TestBuildOf(t *testing.T) {
	noted := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision, clean, dirty := debug.BuildSetting{Key: "vcs.revision", Value: "c0ffee"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, test := range map[string]struct {
		stamp    string
		info     *debug.BuildInfo
		version  string
		revision string
		modified bool
	}{
		"nothing is known":    {"", nil, "unknown", "", false},
		"a stamp alone":       {"v1.2.3", nil, "v1.2.3", "", false},
		"a module":            {"", noted("v0.9.0"), "v0.9.0", "", false},
		"a checkout":          {"", noted("v0.9.1-0.2026", revision, clean), "v0.9.1-0.2026", "c0ffee", false},
		"a stamp goes before": {"v1.2.3", noted("v0.9.1-0.2026+dirty", revision, dirty), "v1.2.3", "c0ffee", true},
		"a test":              {"", noted(""), "unknown", "", false},
	} {
		b := buildOf(test.stamp, test.info)
		if b.Version != test.version || b.Revision != test.revision || b.Modified != test.modified || b.Go != runtime.Version() || len(b.Bundled) == 0 {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// The flag in docs/operating.md and docs/Containerfile stamps the program.
func TestStampedVersion(t *testing.T) {
	program := filepath.Join(t.TempDir(), "glovebox.exe")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.stamp=v9.8.7", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	output, err := exec.CommandContext(t.Context(), program, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var b buildVersion
	if err := json.Unmarshal(output, &b); err != nil || b.Version != "v9.8.7" {
		t.Errorf("it says %s (%v)", output, err)
	}
}
