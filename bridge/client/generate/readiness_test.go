package generate_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
)

// The answer of readyz, which no table of methods has, has the server's members in the
// clients' types as well.
func TestReadiness(t *testing.T) {
	var want []string
	for f := range reflect.TypeFor[api.Readiness]().Fields() {
		want = append(want, f.Tag.Get("json"))
	}
	slices.Sort(want)
	member := regexp.MustCompile(`(?m)^ +(\w+): `)
	for file, opening := range map[string]string{
		"../python/nexus_client/core.py": "class Readiness(TypedDict):\n",
		"../typescript/nexus.d.mts":      "export interface Readiness {\n",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), opening)
		rest, _, _ = strings.Cut(rest, "\n}\n")  // the end of the interface
		rest, _, _ = strings.Cut(rest, "\n\n\n") // of the class
		var got []string
		for _, m := range member.FindAllStringSubmatch(rest, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}
