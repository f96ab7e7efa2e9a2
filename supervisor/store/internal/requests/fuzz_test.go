package requests_test

import (
	"bytes"
	"testing"

	"nexus.internal/supervisor/store/internal/requests"
)

// What is read and written anew says the same when it is read again, and
// nothing has two outcomes.
func FuzzFile(f *testing.F) {
	head := `{"type":"outcomes","version":1}` + "\n"
	digest := `"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}` + "\n"
	accepted := `{"type":"accepted","request_id":"1",` + digest
	ended := `{"type":"ended","request_id":"1","outcome":"crashed","usage":{"input_tokens":1,"output_tokens":2},"incarnation":1,` +
		`"error":{"message":"m","is":["aborted"],"kind":"crash","exit":{"code":-1,"signal":"killed"}},"text":"€"}` + "\n"
	for _, s := range []string{"", head, head + accepted, head + accepted + ended, head + accepted + ended + accepted + ended, head + ended + accepted, head + accepted + ended[:50], head + accepted + "   \n" + accepted, head + accepted + " \"x\n" + ended, " \n" + head, `{"type":"outcomes","version":2}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, good, done, waiting, err := requests.Again(data)
		if err != nil {
			return
		}
		if good > len(data) || good > 0 && data[good-1] != '\n' {
			t.Fatalf("%d of %d bytes are good", good, len(data))
		}
		third, good, done2, waiting2, err := requests.Again(again)
		if err != nil || good != len(again) || done2 != min(done, requests.MaxOutcomes) || waiting2 != waiting {
			t.Fatalf("%d and %d records came back as %d and %d (%v), %d of %d bytes", done, waiting, done2, waiting2, err, good, len(again))
		}
		if !bytes.Equal(third, again) {
			t.Errorf("written anew %q, again %q", again, third)
		}
	})
}
