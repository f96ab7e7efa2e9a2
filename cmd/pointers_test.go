package cmd_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// specificationPages are the pages over which the sections and decisions of the specification
// are spread.
var specificationPages = []string{
	"SPEC.md", "bridge/SECURITY.md", "child/AGENT.md", "child/FOREIGN.md", "cmd/OPERATIONS.md", "cmd/nexus-bench/FIGURES.md", "supervisor/SUPERVISION.md",
}

var (
	sectionHead  = regexp.MustCompile(`(?m)^##+ ([0-9]+(?:\.[0-9]+)*)\.? `)
	decisionHead = regexp.MustCompile(`(?m)^\| (D[0-9]+) \|`)

	// A pointer to sections: §4.5, "SPEC 3.2, 3.9", "SPEC.md, section 6", and what stands
	// before it: a page (`child/AGENT.md` §4.4), or another document (RFC 9110 §10.2.3).
	sectionPointer = regexp.MustCompile("(?:([A-Z]+ ?[0-9]+|[a-z/-]*[A-Z]+\\.md)`?,? )?(?:§|SPEC §?|SPEC\\.md, section )([0-9]+(?:\\.[0-9]+)*(?:, [0-9]+\\.[0-9]+)*)")
	// A pointer to a decision, and the page before it: "child/AGENT.md, D12".
	decisionPointer = regexp.MustCompile("(?:([a-z/-]*[A-Z]+)(?:\\.md)?`?,? )?(?:§9, )?\\b(D[1-9][0-9]?)\\b")
)

// pageParts are what each page has that one can point to.
func pageParts(t *testing.T, head *regexp.Regexp) map[string]map[string]bool {
	t.Helper()
	parts, where := map[string]map[string]bool{}, map[string]string{}
	for _, page := range specificationPages {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		parts[page] = map[string]bool{}
		for _, match := range head.FindAllStringSubmatch(string(text), -1) {
			if there := where[match[1]]; there != "" {
				t.Errorf("%s stands in %s and in %s", match[1], there, page)
			}
			parts[page][match[1]], where[match[1]] = true, page
		}
	}
	return parts
}

// What a text points to exists, on the page that it names: a section was moved, or a number was
// given away, and nobody who followed the pointer found it. SPEC stands for all pages where a
// section is meant, since it says where each is, and for SPEC.md where a decision is.
func TestPointers(t *testing.T) {
	sections, decisions := pageParts(t, sectionHead), pageParts(t, decisionHead)
	has := func(parts map[string]map[string]bool, page, name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(parts)), func(one string) bool {
			return parts[one][name] && (page == "" || one == page || strings.HasSuffix(one, "/"+page))
		})
	}
	checked := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		rel := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (rel == "bin" || entry.Name() == ".git" || entry.Name() == "node_modules" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || rel == "cmd/pointers_test.go" || !entry.Type().IsRegular():
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil || !utf8.Valid(raw) {
			return err
		}
		text := string(raw)
		for _, match := range sectionPointer.FindAllStringSubmatch(text, -1) {
			page := match[1]
			if page != "" && !strings.HasSuffix(page, ".md") && page != "SPEC" {
				continue // of another document
			}
			if page == "SPEC.md" {
				page = ""
			}
			for name := range strings.SplitSeq(match[2], ", ") {
				checked++
				if !has(sections, page, name) {
					t.Errorf("%s: there is no section %s: %q", rel, name, match[0])
				}
			}
		}
		if entry := decisionHead.ReplaceAllString(text, ""); filepath.Ext(rel) == ".md" || filepath.Ext(rel) == ".go" {
			for _, match := range decisionPointer.FindAllStringSubmatch(entry, -1) {
				page := match[1]
				if page != "" {
					page += ".md"
				} else if page = "SPEC.md"; decisions[rel] != nil {
					page = rel
				}
				checked++
				if !has(decisions, page, match[2]) {
					t.Errorf("%s: there is no decision %s on %s: %q", rel, match[2], page, match[0])
				}
			}
		}
		return nil
	})
	if err != nil || checked < 500 {
		t.Errorf("checked %d pointers: %v", checked, err)
	}
}
