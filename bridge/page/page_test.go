package page_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"nexus.internal/bridge/page"
)

func TestFiles(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for _, entry := range entries {
		at, media := "/page/"+entry.Name(), ""
		switch {
		case entry.Name() == "index.html":
			at, media = "/", "text/html; charset=utf-8"
		case strings.HasSuffix(at, ".css"):
			media = "text/css; charset=utf-8"
		case strings.HasSuffix(at, ".js"):
			media = "text/javascript; charset=utf-8"
		}
		file, ok := page.Find(at)
		if ok != (media != "") || file.Type != media {
			t.Errorf("%s: served %v as %q, want %q", at, ok, file.Type, media)
		}
		if ok {
			served++
		}
	}
	if served < 3 {
		t.Errorf("%d files are served, that cannot be all", served)
	}
	for _, path := range []string{"", "/page/", "/page", "/page/page.go", "/page/../index.html", "/index.html", "/page/PAGE.js"} {
		if _, ok := page.Find(path); ok {
			t.Errorf("there is a file at %q", path)
		}
	}
}

// What the page is made of keeps to its policy, so that no browser is needed to
// see that it does.
func TestPolicy(t *testing.T) {
	h := http.Header{}
	index, _ := page.Find("/")
	page.Head(h)
	for name, want := range map[string]string{
		"Content-Security-Policy": page.Policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, want := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
	} {
		if !strings.Contains(page.Policy+";", want+";") {
			t.Errorf("the policy lacks %s", want)
		}
	}
	// Neither code nor style within the markup, and nothing from elsewhere.
	for _, wrong := range []string{`(?i)\son[a-z]+=`, `(?i)\sstyle=`, `<style`, `<script[^>]*>[^<]`, `(?i)https?:`, `javascript:`} {
		if found := regexp.MustCompile(wrong).Find(index.Body); found != nil {
			t.Errorf("index.html has %q", found)
		}
	}
	// No reading of text as markup or code, and no place where the key could stay.
	sinks := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|localStorage|sessionStorage|indexedDB|document\.cookie`)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if file, ok := page.Find("/page/" + entry.Name()); ok {
			if found := sinks.Find(file.Body); found != nil {
				t.Errorf("%s uses %s", entry.Name(), found)
			}
		}
	}
}

// Each file that another one names is there.
func TestLinks(t *testing.T) {
	names := regexp.MustCompile(`(?:href|src|from)[= ]"(?:\./|/page/)([^"]+)"`)
	seen := 0
	for at := range strings.FieldsSeq("/ /page/page.js /page/wire.js /page/dom.js /page/events.js /page/questions.js /page/talk.js") {
		file, ok := page.Find(at)
		if !ok {
			t.Errorf("there is nothing at %s", at)
		}
		for _, name := range names.FindAllSubmatch(file.Body, -1) {
			seen++
			if _, ok := page.Find("/page/" + string(name[1])); !ok {
				t.Errorf("%s names %s, which is not there", at, name[1])
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d names were found, that cannot be all", seen)
	}
}
