package capability_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/capability"
)

func rule(t interface{ Fatal(...any) }, text string) capability.HostRule {
	r, err := capability.ParseHostRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHostRuleAllows(t *testing.T) {
	for _, test := range []struct {
		rule       string
		allows, no []string // GET unless a method is before the URL
	}{
		{"https://api.example.com",
			[]string{"https://api.example.com", "https://api.example.com/", "https://API.example.com:443/a?b", "HEAD https://api.example.com/", "HTTPS://api.example.com/"},
			[]string{"http://api.example.com/", "https://api.example.com:8443/", "https://example.com/", "https://x.api.example.com/", "POST https://api.example.com/",
				"https://api.example.com.evil.test/", "https://api.example.com@evil.test/", "https://evil.test/https://api.example.com/", "https://api.example.com./"}},
		{"POST,GET https://api.example.com:8443/v1",
			[]string{"https://api.example.com:8443/v1", "POST https://api.example.com:8443/v1/x", "https://api.example.com:8443/v1?q", "https://api.example.com:8443/%76%31/x"},
			[]string{"HEAD https://api.example.com:8443/v1", "https://api.example.com/v1", "https://api.example.com:8443/v10", "https://api.example.com:8443/V1",
				"https://api.example.com:8443/v1/../v2", "https://api.example.com:8443/v1%2Fx", "https://api.example.com:8443//v1"}},
		{"https://api.example.com/v1/", []string{"https://api.example.com/v1/", "https://api.example.com/v1/x"}, []string{"https://api.example.com/v1", "https://api.example.com/"}},
		{"https://*.example.com",
			[]string{"https://a.example.com/", "https://a.b.example.com/"},
			[]string{"https://example.com/", "https://aexample.com/", "https://.example.com/", "https://a.example.com.test/", "https://*.example.com/"}},
		{"https://bücher.example", []string{"https://xn--bcher-kva.example/", "https://BÜCHER.example/", "https://bu\u0308cher.example/"}, []string{"https://bucher.example/"}},
		{"http://[2606:4700:0:0::1111]:8080", []string{"http://[2606:4700::1111]:8080/"}, []string{"http://[2606:4700::1111]/", "http://[2606:4700::1112]:8080/"}},
		{"http://93.184.215.14", []string{"http://93.184.215.14/"}, []string{"http://1572395790/", "http://0x5d.184.215.14/", "http://93.184.55054/", "http://[::ffff:93.184.215.14]/"}},
		{"https://a.example/x_y~(1)", []string{"https://a.example/x_y~(1)/z"}, []string{"https://a.example/x_y"}},
	} {
		r := rule(t, test.rule)
		for want, urls := range map[bool][]string{true: test.allows, false: test.no} {
			for _, text := range urls {
				method, rawURL, found := strings.Cut(text, " ")
				if !found {
					method, rawURL = "GET", text
				}
				if r.Allows(method, rawURL) != want {
					t.Errorf("%q allows %s: %v", test.rule, text, !want)
				}
			}
		}
	}
	if (capability.HostRule{}).Allows("GET", "https://a.example/") {
		t.Error("the zero rule allows something")
	}
}

func TestParseHostRuleErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                               "https://",
		"example.com":                                    "https://",
		"ftp://example.com":                              "https://",
		"https://":                                       "empty",
		"https://*":                                      "first labels",
		"https://*.com":                                  "below com",
		"https://*.co.uk":                                "below co.uk",
		"https://*.github.io":                            "below github.io",
		"https://a.*.example.com":                        "first labels",
		"https://*.*.example.com":                        "first labels",
		"https://a*.example.com":                         "first labels",
		"https://*.10.0.0.1":                             "address",
		"https://example.com/v1/*":                       "prefix",
		"https://example.com?a":                          "query",
		"https://example.com/#a":                         "fragment",
		"https://user@example.com":                       "user",
		"https://example.com:0":                          "port",
		"https://example.com:99999":                      "port",
		"https://example.com:":                           "port",
		"https://example.com/../x":                       `".."`,
		"https://example.com/%2e/x":                      `"."`,
		"https://example.com/%zz":                        "%",
		"https://example..com":                           "label",
		"https://-a.example":                             "label",
		"https://exa mple.com":                           "method",
		"get https://example.com":                        "method",
		"GET, POST https://example.com":                  "method",
		"TRACE https://example.com":                      "method",
		"GET  https://example.com":                       "U+0020",
		"https://127.1":                                  "1.2.3.4",
		"https://0x7f000001":                             "1.2.3.4",
		"https://[::1":                                   "]",
		"https://[::1]x":                                 "port",
		"https://[127.0.0.1]":                            "IPv6",
		"https://[fe80::1%25eth0]":                       "IPv6",
		"https://" + strings.Repeat("a", 64):             "label",
		"https://a.example/" + strings.Repeat("a", 9000): "8192",
		"https://a.example/\u202e":                       "U+202E",
		"https://a.example/\x00":                         "U+0000",
		"https://a.example\\b":                           `\`,
		"https://\xff.example":                           "UTF-8",
	} {
		r, err := capability.ParseHostRule(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `host rule "`) || len(err.Error()) > 600 {
			t.Errorf("%q: %v, %v; want %q", text, r, err, want)
		}
	}
	if _, err := capability.ParseHostRules(make([]string, 101)); err == nil || !strings.Contains(err.Error(), "101") {
		t.Error(err)
	}
}

func TestIntersect(t *testing.T) {
	for _, test := range []struct {
		asked, allowed, want []string
	}{
		{[]string{"https://a.example"}, []string{"https://a.example/v1/"}, []string{"https://a.example/v1/"}},
		{[]string{"https://a.example/v1/"}, []string{"https://a.example/v1"}, []string{"https://a.example/v1/"}},
		{[]string{"https://a.example/v1"}, []string{"https://a.example/v10"}, nil},
		{[]string{"https://*.b.example"}, []string{"https://a.b.example", "https://b.example"}, []string{"https://a.b.example/"}},
		{[]string{"https://*.b.example"}, []string{"https://*.a.b.example"}, []string{"https://*.a.b.example/"}},
		{[]string{"https://*.b.example"}, []string{"https://*.b.example"}, []string{"https://*.b.example/"}},
		{[]string{"GET,POST https://a.example"}, []string{"POST,DELETE https://a.example"}, []string{"POST https://a.example/"}},
		{[]string{"GET https://a.example"}, []string{"POST https://a.example"}, nil},
		{[]string{"https://a.example"}, []string{"http://a.example", "https://a.example:444"}, nil},
		{[]string{"https://a.example", "https://a.example"}, []string{"https://a.example"}, []string{"https://a.example/"}},
		{nil, []string{"https://a.example"}, nil},
		{[]string{"https://a.example"}, nil, nil},
	} {
		asked, err := capability.ParseHostRules(test.asked)
		if err != nil {
			t.Fatal(err)
		}
		allowed, err := capability.ParseHostRules(test.allowed)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range capability.Intersect(asked, allowed) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v and %v: %v, want %v", test.asked, test.allowed, got, test.want)
		}
	}
}

// What is in force is what both allow, for any rules and requests.
func TestIntersectAllowsWhatBothAllow(t *testing.T) {
	ruleText := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "GET ", "POST ", "GET,POST "}).Draw(t, "methods") +
			rapid.SampledFrom([]string{"https://", "http://"}).Draw(t, "scheme") +
			rapid.SampledFrom([]string{"", "*."}).Draw(t, "wildcard") +
			rapid.SampledFrom([]string{"a.example.com", "b.a.example.com", "example.com"}).Draw(t, "host") +
			rapid.SampledFrom([]string{"", ":443", ":80"}).Draw(t, "port") +
			rapid.SampledFrom([]string{"", "/", "/v1", "/v1/", "/v1/x", "/v10"}).Draw(t, "path")
	})
	var requests []string
	for _, method := range []string{"GET", "HEAD", "POST", "PUT"} {
		for _, scheme := range []string{"https://", "http://"} {
			for _, host := range []string{"a.example.com", "b.a.example.com", "example.com", "c.b.a.example.com"} {
				for _, rest := range []string{"", ":80", ":443/v1", "/v1", "/v1/", "/v1/x", ":80/v1/x/y", "/v10"} {
					requests = append(requests, method+" "+scheme+host+rest)
				}
			}
		}
	}
	both := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := rule(t, ruleText.Draw(t, "a")), rule(t, ruleText.Draw(t, "b"))
		in := capability.Intersect([]capability.HostRule{a}, []capability.HostRule{b})
		for _, r := range in {
			if again := rule(t, r.String()); again != r {
				t.Errorf("%v is read as %v", r, again)
			}
		}
		for _, request := range requests {
			method, rawURL, _ := strings.Cut(request, " ")
			want := a.Allows(method, rawURL) && b.Allows(method, rawURL)
			got := slices.ContainsFunc(in, func(r capability.HostRule) bool { return r.Allows(method, rawURL) })
			if got != want {
				t.Errorf("%v and %v for %s: %v, want %v", a, b, request, got, want)
			}
			if want {
				both++
			}
		}
	})
	if both == 0 && !testing.Short() { // a short run may draw none
		t.Error("nothing was allowed by both: this test looks at the wrong rules")
	}
}

// What we understand a URL to be, the transport does too, and it does not
// change when it is read again.
func FuzzURL(f *testing.F) {
	for _, test := range forbidden {
		f.Add(test.url)
	}
	for _, seed := range []string{"https://example.com/v1/a%7eb?q=ä", "HTTPS://BÜCHER.example:443//x;y=1/%2F?%zz", "https://[2606:4700::1111]:8080/a%2Fb", "http://a.example/%c3%28?'\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		normal, host, err := capability.NormalURL(raw)
		if err != nil {
			return
		}
		if again, _, err := capability.NormalURL(normal); err != nil || again != normal {
			t.Fatalf("%q: %q is read again as %q, %v", raw, normal, again, err)
		}
		u, err := url.Parse(normal)
		if err != nil {
			t.Fatalf("%q: %v", normal, err)
		}
		if u.Hostname() != host || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.String() != normal {
			t.Fatalf("%q: sent as %q to %q, understood as %q", raw, u, u.Hostname(), host)
		}
		for segment := range strings.SplitSeq(u.Path, "/") {
			if segment == ".." || segment == "." {
				t.Fatalf("%q leads upwards", normal)
			}
		}
		for i := range len(normal) {
			if normal[i] <= ' ' || normal[i] >= 0x7f || normal[i] == '\\' {
				t.Fatalf("%q has the byte %#x", normal, normal[i])
			}
		}
	})
}

func FuzzHostRule(f *testing.F) {
	for _, seed := range []string{"https://api.example.com", "GET,POST https://*.example.com:8443/v1/", "http://[::1]:80", "https://*.co.uk", "https://bücher.example/ä"} {
		f.Add(seed, "https://a.example.com/v1/x")
	}
	f.Fuzz(func(t *testing.T, text, rawURL string) {
		r, err := capability.ParseHostRule(text)
		if err != nil {
			return
		}
		again, err := capability.ParseHostRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q: written as %q, read as %v, %v", text, r, again, err)
		}
		if _, host, err := capability.NormalURL(rawURL); r.Allows("GET", rawURL) && (err != nil || !strings.Contains(text, "*") && !strings.Contains(r.String(), host)) {
			t.Fatalf("%q allows %q", r, rawURL)
		}
	})
}
