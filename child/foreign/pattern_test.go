package foreign

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A pattern of files leads elsewhere if anything that it may stand for does, however that is written; one that does not is none of a path's.
func TestPatternLeadsElsewhere(t *testing.T) {
	for pattern, want := range map[string]bool{
		"*.go": false, "**/*.{ts,tsx}": false, "src/**/{a,b}/*.js": false, "!(node_modules)/**": false, "*.@(js|ts)": false, "{a..z}.txt": false, "{1..3}/x": false,
		"a.{b,c}.d": false, "[ab]*": false, "...": false, "{,.}gitignore": false, "{a": false, "a)": false, "(a|b)": false, "+([0-9]).log": false,
		"../x": true, "/etc/*": true, "~/x": true, "$HOME/x": true, "{a,/etc}/*": true, "@(..)/x": true,
		"{.,}./{.,}./home/*": true, "{,}/etc/passwd": true, ".{.,}/.{.,}/home": true, "+(.)/+(.)/home": true, "?(.)./x": true, `\../x`: true, `.\./.\./home/*`: true, `\/etc/passwd`: true,
		"{a,{b,..}}/x": true, "{a,.}{b,.}/x": true, "*(.)/x": true, "[.][.]/x": true, "x/{.,}{.,}/y": true,
		strings.Repeat("{a,b}", 9): true, strings.Repeat("a", maxPath+1): true,
	} {
		if got := leadsElsewhere(pattern); got != want {
			t.Errorf("%.40s: %t, want %t", pattern, got, want)
		}
	}
}

// A cost is a number that sums and differences of can be written.
func TestCost(t *testing.T) {
	for told, want := range map[string]bool{"0": true, "0.25": true, "1e9": true, "1e10": false, "1e400": false, "-1": false, "-1.7e308": false, `"1"`: false, "null": false, "true": false, "": false} {
		if dollars, ok := Cost(gjson.Parse(told)); ok != want || !ok && dollars != 0 {
			t.Errorf("%s: %v, %t", told, dollars, ok)
		}
	}
}
