package tracing_test

import (
	"testing"

	"nexus.internal/protocol/tracing"
)

const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"sampled", "00-" + trace + "-" + span + "-01", "00-" + trace + "-" + span + "-01"},
		{"not sampled", "00-" + trace + "-" + span + "-00", "00-" + trace + "-" + span + "-00"},
		{"flags that are not known", "00-" + trace + "-" + span + "-ff", "00-" + trace + "-" + span + "-01"},
		{"a later version", "cc-" + trace + "-" + span + "-01-more", "00-" + trace + "-" + span + "-01"},
		{"nothing", "", ""},
		{"more than version 00 has", "00-" + trace + "-" + span + "-01-more", ""},
		{"a later version, badly", "cc-" + trace + "-" + span + "-01.more", ""},
		{"version ff", "ff-" + trace + "-" + span + "-01", ""},
		{"no trace", "00-00000000000000000000000000000000-" + span + "-01", ""},
		{"no span", "00-" + trace + "-0000000000000000-01", ""},
		{"upper case", "00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01", ""},
		{"other characters", "00-" + trace[:31] + "g-" + span + "-01", ""},
		{"another shape", "00-" + trace + span + "--01", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := tracing.Parse(tt.text)
			if p.String() != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %t", p, ok)
			}
		})
	}
}

// What Parse takes is written as a traceparent that Parse takes for the same.
func FuzzParse(f *testing.F) {
	f.Add("00-" + trace + "-" + span + "-01")
	f.Add("cc-" + trace + "-" + span + "-01-more")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := tracing.Parse(text)
		if !ok {
			return
		}
		if again, ok := tracing.Parse(p.String()); !ok || again != p {
			t.Errorf("%q is %v, and then %v", text, p, again)
		}
	})
}
