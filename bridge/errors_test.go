package bridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestErrorsAreToldOnce looks at every error in fixtures/rpc: details repeat neither
// the message nor a recovery suggestion.
func TestErrorsAreToldOnce(t *testing.T) {
	checked := 0
	err := fs.WalkDir(os.DirFS("../fixtures/rpc"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../fixtures/rpc", name))
		for line := range strings.Lines(string(text)) {
			data := gjson.Get(line, "error.data")
			details, message := data.Get("details").String(), gjson.Get(line, "error.message").String()
			if details == "" {
				continue
			}
			checked++
			if strings.Contains(details, message) || strings.Contains(strings.ToLower(message+data.Get("recovery_suggestions").Raw), strings.ToLower(details)) {
				t.Errorf("%s: said twice: %s", name, line)
			}
		}
		return err
	})
	if err != nil || checked < 50 {
		t.Errorf("checked %d errors: %v", checked, err)
	}
}
