package page

import (
	"embed"
	"fmt"
	"net/http"
	"path"
)

// File is one file of the page.
type File struct {
	Type string // media type
	Body []byte // to be read only
}

//go:embed index.html page.css *.js
var folder embed.FS

// files are index.html at /, and the others at /page/NAME.
var files = read()

func read() map[string]File {
	types := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
	entries, err := folder.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("page: %v", err))
	}
	files := map[string]File{}
	for _, entry := range entries {
		body, err := folder.ReadFile(entry.Name())
		if err != nil {
			panic(fmt.Sprintf("page: %v", err))
		}
		at := "/page/" + entry.Name()
		if entry.Name() == "index.html" {
			at = "/"
		}
		files[at] = File{Type: types[path.Ext(entry.Name())] + "; charset=utf-8", Body: body}
	}
	return files
}

// Find returns the file at a path, byte for byte.
func Find(path string) (File, bool) {
	file, ok := files[path]
	return file, ok
}

// Policy lets the page load its own files and ask its own server, and nothing
// else: no script in what it shows can run, and no other page can hold it.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Head sets the headers that go with each file, but for its type.
func Head(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
