package bridge_test

import (
	"bytes"
	"strconv"
	"testing"

	"nexus.internal/bridge/page"
)

// The page is for everybody who comes by the right name, and nothing else is.
func TestPage(t *testing.T) {
	r := rigged(t, nil)
	host := "Host: " + r.addr + "\r\n"
	for _, test := range []struct {
		name, line, headers string
		want                int
		file                string // of the page
		allow               string
	}{
		{"the page", "GET / HTTP/1.1", host, 200, "/", ""},
		{"with a query", "GET /?a=b HTTP/1.1", host, 200, "/", ""},
		{"its script", "GET /page/page.js HTTP/1.1", host, 200, "/page/page.js", ""},
		{"its style", "GET /page/page.css HTTP/1.1", host, 200, "/page/page.css", ""},
		{"by another name", "GET / HTTP/1.1", "Host: evil.example\r\n", 403, "", ""},
		{"from another page", "GET / HTTP/1.1", host + "Origin: http://evil.example\r\n", 403, "", ""},
		{"another method", "PUT / HTTP/1.1", host, 405, "", "POST, GET, HEAD"},
		{"a call to a file", "POST /page/page.js HTTP/1.1", host, 405, "", "GET, HEAD"},
		{"a file that is not there", "GET /page/page.go HTTP/1.1", host, 401, "", ""},
		{"a way around", "GET /page/../page/page.js HTTP/1.1", host, 401, "", ""},
		{"a call without a key", "POST / HTTP/1.1", host, 401, "", ""},
		{"where methods are", "GET /rpc HTTP/1.1", host, 405, "", "POST"},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := r.raw(test.line + "\r\n" + test.headers + "Connection: close\r\n\r\n")
			if response.StatusCode != test.want || response.Header.Get("Allow") != test.allow {
				t.Fatalf("HTTP %d, Allow %q, want %d, %q", response.StatusCode, response.Header.Get("Allow"), test.want, test.allow)
			}
			if test.file == "" {
				return
			}
			file, _ := page.Find(test.file)
			if !bytes.Equal([]byte(body), file.Body) || response.Header.Get("Content-Type") != file.Type {
				t.Errorf("got %d bytes of %s, want %d of %s", len(body), response.Header.Get("Content-Type"), len(file.Body), file.Type)
			}
			if response.Header.Get("Content-Security-Policy") != page.Policy || response.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", response.Header)
			}
		})
	}

	response, body := r.do("HEAD", "/", nil)
	file, _ := page.Find("/")
	if response.StatusCode != 200 || body != "" || response.Header.Get("Content-Length") != strconv.Itoa(len(file.Body)) {
		t.Errorf("HEAD: HTTP %d, %q, %v", response.StatusCode, body, response.Header)
	}
}
