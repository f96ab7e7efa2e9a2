package rights_test

import (
	"slices"
	"strings"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

func TestParseHost(t *testing.T) {
	for text, want := range map[string]string{
		"example.com": "example.com", "Example.COM.": "example.com", "example.com:8080": "example.com:8080", "*.example.com": "*.example.com",
		"*.example.com:443": "*.example.com:443", "10.1.2.3": "10.1.2.3", "10.1.2.3:80": "10.1.2.3:80", "::1": "::1", "[::1]:80": "[::1]:80",
		"::ffff:10.1.2.3": "10.1.2.3", "a_b.test": "a_b.test", "localhost": "localhost",
		"": "", "*": "", "*.": "", "*.*.test": "", "a*.test": "", "https://a.test": "", "a.test/x": "", "a.test:": "", "a.test:0": "", "a.test:65536": "",
		"a..test": "", "-a.test": "", "a b": "", "a.test\n": "", "fe80::1%lo": "", "u@a.test": "", "ü.test": "", strings.Repeat("a.", 127) + "a": "", ":80": "", "[::1": "::1",
	} {
		h, err := rights.ParseHost(text)
		if got := h.String(); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// An entry is what its text says, and reads so again.
func FuzzParseHost(f *testing.F) {
	for _, text := range []string{"a.test:80", "*.b.test", "[::1]:1", "10.0.0.1", "::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := rights.ParseHost(text)
		if err != nil {
			return
		}
		if again, err := rights.ParseHost(h.String()); err != nil || again != h {
			t.Errorf("%q is %+v, and read again %+v, %v", text, h, again, err)
		}
	})
}

func TestBeyondNetworks(t *testing.T) {
	for _, tt := range []struct {
		preset, hosts, ofBound, bound string // a list of "-" is none
		want                          string
	}{
		{"sandboxed", "-", "trusted", "-", ""},
		{"trusted", "-", "trusted", "a.test", "all of the network"},
		{"trusted", "a.test", "trusted", "-", ""},
		{"trusted", "a.test b.test", "trusted", "*.test", ""},
		{"trusted", "*.test", "trusted", "a.test", "the network of *.test"},
		{"trusted", "a.test:8080", "trusted", "a.test", "the network of a.test:8080"},
		{"trusted", "a.test:443", "trusted", "a.test", ""},
		{"trusted", "a.test", "trusted", "a.test:443", "the network of a.test"},
		{"sandboxed", "a.test", "sandboxed", "-", "the network of a.test"},
		{"sandboxed", "", "sandboxed", "-", "a network of its own"},
		{"sandboxed", "", "trusted", "a.test", ""},
		{"sandboxed", "-", "sandboxed", "a.test", ""},
		{"sandboxed", "a.test", "sandboxed", "*.test a.test", ""},
		{"sandboxed", "a.test", "trusted", "-", "the network of a.test without asking"},
		{"sandboxed", "a.test", "trusted", "a.test", "the network of a.test without asking"},
		{"sandboxed", "a.test", "yolo", "-", ""},
	} {
		permissions := func(preset, list string) protocol.Permissions {
			p := protocol.Permissions{Preset: preset}
			if list != "-" {
				p.Network = slices.AppendSeq([]string{}, strings.FieldsSeq(list))
			}
			return p
		}
		p, bound := permissions(tt.preset, tt.hosts), permissions(tt.ofBound, tt.bound)
		if got := strings.Join(rights.Beyond(p, bound), ", "); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
		if over := rights.Beyond(rights.Intersect(p, bound), bound); over != nil {
			t.Errorf("%+v: what both allow is beyond one: %v", tt, over)
		}
	}
}

// Sandboxed reaches its hosts unasked: beyond what asks a person, by whichever tool. Where these tools are disabled, denied or asked for, the
// hosts wait for that to be lifted: neither set nor handed on.
func TestBeyondQuestionsOfTheNetwork(t *testing.T) {
	rules := func(modes ...string) map[string]protocol.ToolRule {
		m := map[string]protocol.ToolRule{}
		for i := 0; i < len(modes); i += 2 {
			m[modes[i]] = protocol.ToolRule{Mode: modes[i+1]}
		}
		return m
	}
	for _, tt := range []struct {
		own, bound    map[string]protocol.ToolRule
		disabled      []string
		beyond, later bool
	}{
		{nil, rules("shell", "allow"), nil, true, true},
		{nil, rules("web_fetch", "allow"), nil, true, true},
		{nil, rules("shell", "allow", "web_fetch", "allow"), nil, false, false},
		{rules("shell", "ask", "web_fetch", "ask"), nil, nil, false, true},
		{rules("shell", "ask"), nil, nil, true, true},
		{rules("shell", "ask", "web_fetch", "deny"), nil, nil, false, true},
		{rules("web_fetch", "deny"), rules("shell", "allow"), nil, false, true},
		{nil, nil, []string{"shell", "web_fetch", "job_start"}, false, true},
	} {
		p := protocol.Permissions{Preset: rights.Sandboxed, Network: []string{"a.test"}, Tools: tt.own, DisabledTools: tt.disabled}
		bound := protocol.Permissions{Preset: rights.Trusted, Tools: tt.bound}
		over := rights.Beyond(p, bound)
		if got := slices.Contains(over, "the network of a.test without asking"); got != tt.beyond {
			t.Errorf("%v of %v: %v", tt.own, tt.bound, over)
		}
		over = rights.Widens(p, bound)
		if got := slices.Contains(over, "the network of a.test without asking"); got != tt.later {
			t.Errorf("%v of %v, later: %v", tt.own, tt.bound, over)
		}
		for _, met := range []protocol.Permissions{rights.Intersect(p, bound), rights.Intersect(bound, p)} {
			if (met.Network == nil) != tt.later {
				t.Errorf("%v of %v: both allow the network of %q", tt.own, tt.bound, met.Network)
			}
			if over := rights.Widens(met, bound); over != nil {
				t.Errorf("%v of %v: what both allow is beyond one: %v", tt.own, tt.bound, over)
			}
		}
	}
}
